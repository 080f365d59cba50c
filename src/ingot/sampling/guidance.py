"""Classifier-free guidance (Sanchez et al., 2023): one prompt against another.

Comes in: the logits after the prompt and those after a second, unwanted or empty one, for the
same written tokens. Goes out: logits away from the second, for one chain to choose from.
"""

import numpy as np

from ingot.arrays import Logits
from ingot.errors import LogitsError


def guide(row: Logits, other: Logits, scale: float) -> Logits:
    """Change `row` to other + scale * (row - other) and return it; a scale of 1 changes nothing.

    The definition is on log-probabilities. These differ from logits by a constant for each
    row, which the choice of a token does not depend on.
    """
    if row.shape != other.shape:
        raise LogitsError(f"logits of shapes {row.shape} and {other.shape} do not go together")
    banned = row == -np.inf
    with np.errstate(invalid="ignore"):
        np.subtract(row, other, out=row)
        np.multiply(row, np.float32(scale), out=row)
        np.add(row, other, out=row)
    row[banned] = -np.inf
    return row
