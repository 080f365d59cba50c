"""Structured output: the model fills in a dataclass.

python examples/structured.py [MODEL]
"""

import sys
from dataclasses import dataclass
from typing import Literal

from ingot import LLM, store


@dataclass
class Review:
    mood: Literal["good", "bad"]
    stars: int
    words: list[str]


path = store.resolve(sys.argv[1] if len(sys.argv) > 1 else "default")

with LLM(path) as llm:
    prompt = "The food was cold and the waiter was rude.\nThe review above as JSON:\n"
    done = llm.generate(prompt, schema=Review, temperature=0.3, seed=1, max_tokens=100)
    print(f"not finished: {done.text}" if done.is_cut else done.parsed)
