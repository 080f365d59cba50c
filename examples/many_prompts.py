"""Continue many prompts in one batch; their common prefix is read once.

python examples/many_prompts.py [MODEL]
"""

import sys

from ingot import LLM, store

COUNTRIES = ["France", "Germany", "Italy", "Spain", "Japan", "Egypt", "Peru", "Kenya"]
START = "The capital of Austria is Vienna. The capital of Poland is Warsaw."

path = store.resolve(sys.argv[1] if len(sys.argv) > 1 else "default")

with LLM(path) as llm:
    prompts = [f"{START} The capital of {country} is" for country in COUNTRIES]
    for country, done in zip(
        COUNTRIES, llm.batch(prompts, max_tokens=8, temperature=0, stop="."), strict=True
    ):
        print(f"{country}:{done.text}")
