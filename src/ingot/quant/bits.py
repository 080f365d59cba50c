"""The small moves all block formats are made of: bit fields, half floats, rounding.

In and out: arrays whose first axis counts blocks. Knows nothing of any one format.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.arrays import Bytes, Floats


def half_at(blocks: Bytes, offset: int) -> Floats:
    """Read the half float at `offset` of each block: [n, bytes] -> [n, 1]."""
    return blocks[:, offset : offset + 2].view(np.float16).astype(np.float32)


def half_bytes(values: Floats) -> Bytes:
    """Round to half floats: [n, 1] -> [n, 2]."""
    return values.astype(np.float16).view(np.uint8)


def fields(packed: Bytes, width: int) -> Bytes:
    """Split bytes into fields of `width` bits: [..., bytes] -> [..., 8 // width, bytes].

    The lowest field of every byte comes first, then the next one of every byte: the
    order in which nearly all formats keep their weights.
    """
    shifts = np.arange(0, 8, width, dtype=np.uint8)
    return packed[..., None, :] >> shifts[:, None] & np.uint8((1 << width) - 1)


def nibble_pairs(packed: Bytes) -> Bytes:
    """Split each byte into its two nibbles, kept together: [..., b] -> [..., 2 * b]."""
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(
        *packed.shape[:-1], 2 * packed.shape[-1]
    )


def bits(packed: Bytes) -> Bytes:
    """Split each byte into its bits, lowest first: [..., b] -> [..., b, 8]."""
    return np.unpackbits(packed[..., None], axis=-1, bitorder="little")


def inverse(scale: Floats) -> Floats:
    """Divide 1 by the scale, or give 0 where the scale is 0."""
    return np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)


def round_half_away(values: Floats) -> Floats:
    """Round to the nearest whole number, halves away from zero."""
    whole = np.trunc(values)
    return whole + np.trunc(2 * (values - whole))


def to_integers(values: Floats) -> NDArray[Any]:
    """Drop the fraction; what is not finite (a weight over a subnormal scale) is 0."""
    return np.where(np.isfinite(values), values, 0).astype(np.int64)
