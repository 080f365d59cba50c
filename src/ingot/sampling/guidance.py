"""Classifier-free guidance (Sanchez et al., 2023): pushes logits away from a second prompt.

In: the logits after the prompt and those after a second, unwanted or empty one, for the same
generated tokens. Out: the guided logits, for one sampler chain.
"""

import numpy as np

from ingot.arrays import Logits
from ingot.errors import LogitsError


def guide(row: Logits, other: Logits, scale: float) -> Logits:
    """Change `row` to other + scale * (row - other) and return it; a scale of 1 changes nothing.

    The paper defines it on log-probabilities. These differ from logits by a constant per row, which
    does not change the sampled token.
    """
    if row.shape != other.shape:
        raise LogitsError(f"the shapes of the logits differ: {row.shape} and {other.shape}")
    banned = row == -np.inf
    with np.errstate(invalid="ignore"):
        np.subtract(row, other, out=row)
        np.multiply(row, np.float32(scale), out=row)
        np.add(row, other, out=row)
    row[banned] = -np.inf
    return row
