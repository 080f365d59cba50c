"""Generate text, and look at the logits of the next token.

python examples/quick_start.py [MODEL]
"""

import sys

from ingot import LLM, store

path = store.resolve(sys.argv[1] if len(sys.argv) > 1 else "default")

with LLM(path) as llm:
    done = llm.generate("The capital of France is", max_tokens=16, temperature=0)
    print(done.text)
    print(done.finish_reason, len(done.token_ids), "tokens")

    logits = llm.logits(llm.tokenizer.encode("The capital of France is"))
    most_likely = int(logits[-1].argmax())
    print(
        "of",
        logits.shape[1],
        "tokens, the most likely next one is",
        repr(llm.tokenizer.decode([most_likely])),
    )
