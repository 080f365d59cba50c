"""Pick a token from one row of logits: the likeliest, or a draw at a temperature."""

import numpy as np
from numpy.typing import NDArray


def choose(logits: NDArray[np.float32], temperature: float, random: np.random.Generator) -> int:
    """The index chosen; temperature 0 takes the likeliest (the first among equals)."""
    if temperature == 0.0:
        return int(logits.argmax())
    # Adding Gumbel noise and taking the largest draws from the softmax without summing it.
    noise = random.gumbel(size=logits.shape)
    return int((logits / temperature + noise).argmax())
