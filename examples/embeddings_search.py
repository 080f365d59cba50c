"""Search texts by their embeddings.

python examples/embeddings_search.py [QUESTION]
"""

import sys

from ingot import LLM, store

TEXTS = [
    "The cat sat on the warm mat and slept.",
    "Interest rates rose again as the central bank fought inflation.",
    "Boil the pasta for nine minutes, then add the sauce.",
    "The spacecraft entered orbit around Mars.",
]

question = sys.argv[1] if len(sys.argv) > 1 else "How do I cook spaghetti?"

with LLM(store.resolve("default")) as llm:
    near = llm.embed(TEXTS) @ llm.embed(question)  # vectors have length 1, so this is the cosine
    for index in near.argsort()[::-1]:
        print(f"{near[index]:.3f}  {TEXTS[index]}")
