"""Let a text go on in several ways, and keep the one that the model finds likeliest.

python examples/best_of_n.py [MODEL]
"""

import sys

from ingot import LLM, store

PROMPT = "Once upon a time"

path = store.resolve(sys.argv[1] if len(sys.argv) > 1 else "default")

with LLM(path) as llm:
    begun = llm.stream(PROMPT, max_tokens=24, seed=1)
    for _ in range(4):
        next(begun)  # the first pieces are common to all
    forks = llm.fork(begun, 3)  # they share its cache, and draw from seeds of their own
    texts = [request.result().text for request in (begun, *forks)]
    ranked = sorted((llm.score(PROMPT + text).perplexity, text) for text in texts)
    for perplexity, text in ranked:
        print(f"{perplexity:.2f} {text!r}")
