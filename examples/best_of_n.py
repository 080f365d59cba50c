"""Fork a text, continue it in several ways, and rank the results by perplexity.

python examples/best_of_n.py [MODEL]
"""

import sys

from ingot import LLM, store

PROMPT = "Once upon a time"

path = store.resolve(sys.argv[1] if len(sys.argv) > 1 else "default")

with LLM(path) as llm:
    begun = llm.stream(PROMPT, max_tokens=4, seed=1)
    begun.result()  # all forks share these tokens
    # Each fork has its own seed; all share the KV cache of the text so far.
    forks = llm.fork(begun, 4, max_tokens=24)
    texts = [request.result().text for request in forks]
    ranked = sorted((llm.score(PROMPT + text).perplexity, text) for text in texts)
    for perplexity, text in ranked:
        print(f"{perplexity:.2f} {text!r}")
