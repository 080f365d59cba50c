"""What is left of rows that were stored as FP8, in NumPy: the twin of the GPU's kernels."""

import numpy as np
from numpy.typing import NDArray

LARGEST, LEAST_POWER = 448.0, -6  # of E4M3, whose mantissa has 3 bits


def fp8_rows(rows: NDArray[np.floating]) -> NDArray[np.float16]:
    """Rows of finite numbers [rows, size] as a cache gives them back."""
    _, power = np.frexp(np.abs(rows).max(axis=1, keepdims=True))  # the largest is below 2 ** power
    step = np.ldexp(1.0, np.clip(power, -14, 15) - 8)
    scaled = rows / step
    _, own = np.frexp(scaled)
    unit = np.ldexp(1.0, np.maximum(own - 1, LEAST_POWER) - 3)
    codes = np.clip(np.rint(scaled / unit) * unit, -LARGEST, LARGEST)
    return (codes * step).astype(np.float16)
