"""Let a text go on in several ways, and keep the one that the model finds likeliest.

python examples/best_of_n.py [MODEL]
"""

import sys

from ingot import LLM, store

PROMPT = "Once upon a time"

path = store.resolve(sys.argv[1] if len(sys.argv) > 1 else "default")

with LLM(path) as llm:
    begun = llm.stream(PROMPT, max_tokens=4, seed=1)
    begun.result()  # the first tokens are common to all
    # The forks share its cache, and draw from seeds of their own.
    forks = llm.fork(begun, 4, max_tokens=24)
    texts = [request.result().text for request in forks]
    ranked = sorted((llm.score(PROMPT + text).perplexity, text) for text in texts)
    for perplexity, text in ranked:
        print(f"{perplexity:.2f} {text!r}")
