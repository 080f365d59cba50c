"""Pick a token from one row of logits: the likeliest, or a draw at a temperature."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # NumPy imports it on first use, and the likeliest token needs none
    from numpy.random import Generator


def choose(logits: NDArray[np.float32], temperature: float, random: "Generator | None") -> int:
    """The index chosen: the likeliest (the first among equals) at temperature 0 or without
    random numbers.
    """
    if random is None or temperature == 0.0:
        return int(logits.argmax())
    # Adding Gumbel noise and taking the largest draws from the softmax without summing it.
    noise = random.gumbel(size=logits.shape)
    return int((logits / temperature + noise).argmax())
