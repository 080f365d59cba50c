"""A logits processor in Python: this one bans the letter e.

python examples/logits_processor.py [MODEL]
"""

import sys

import numpy as np
from numpy.typing import NDArray

from ingot import LLM, store

path = store.resolve(sys.argv[1] if len(sys.argv) > 1 else "default")

with LLM(path) as llm:
    words = [llm.detokenize([token]) for token in range(llm.graph.vocabulary_size)]
    banned = np.array([token for token, word in enumerate(words) if "e" in word.lower()])

    def without_e(_token_ids: NDArray[np.int32], logits: NDArray[np.float32]) -> None:
        """Change the logits of the next token in place; gets the token ids so far."""
        logits[banned] = -np.inf

    prompt = "There was once a king who"
    print(llm.generate(prompt, max_tokens=16, temperature=0).text)
    print(llm.generate(prompt, max_tokens=16, temperature=0, processors=without_e).text)
