"""The small steps all block formats are made of: bit fields, half floats, rounding.

In and out: arrays whose first axis counts blocks. What `split` needs works on NumPy arrays and on
torch tensors alike (the types name NumPy's); rounding, which only encoders need, on NumPy arrays.
Knows nothing of any one format.
"""

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.arrays import Bytes, Floats, Integers


def library(array: NDArray[Any]) -> ModuleType:
    """Find the library that an array belongs to: numpy or torch."""
    return sys.modules[type(array).__module__.partition(".")[0]]


def half_at(blocks: Integers, offset: int) -> Floats:
    """Read the half float at `offset` of each block: [n, bytes] -> [n, 1]."""
    xp = library(blocks)
    halves = xp.stack([blocks[:, offset], blocks[:, offset + 1]], -1).view(xp.float16)
    singles: Floats = xp.asarray(halves, dtype=xp.float32)
    return singles


def fields(packed: Bytes, width: int) -> Bytes:
    """Split bytes into fields of `width` bits: [..., bytes] -> [..., 8 // width, bytes].

    The lowest field of every byte comes first, then the next one of every byte: the
    order in which nearly all formats keep their weights.
    """
    mask = (1 << width) - 1
    split: Bytes = library(packed).stack([packed >> at & mask for at in range(0, 8, width)], -2)
    return split


def nibble_pairs(packed: Bytes) -> Bytes:
    """Split each byte into its two nibbles, kept together: [..., b] -> [..., 2 * b]."""
    pairs: Bytes = library(packed).stack([packed & 15, packed >> 4], -1)
    return pairs.reshape(*packed.shape[:-1], 2 * packed.shape[-1])


def pairs_of_bits(packed: Bytes) -> Bytes:
    """Split each byte into its four pairs of bits, lowest first: [..., b] -> [..., b, 4]."""
    split: Bytes = library(packed).stack([packed >> at & 3 for at in range(0, 8, 2)], -1)
    return split


def bits(packed: Bytes) -> Bytes:
    """Split each byte into its bits, lowest first: [..., b] -> [..., b, 8]."""
    split: Bytes = library(packed).stack([packed >> at & 1 for at in range(8)], -1)
    return split


def whole_numbers(packed: Bytes, size: int) -> NDArray[np.int64]:
    """Read numbers of `size` bytes, the lowest byte first: [..., size * n] -> [..., n]."""
    xp = library(packed)
    parts = xp.asarray(packed, dtype=xp.int64)
    parts = parts.reshape(*packed.shape[:-1], packed.shape[-1] // size, size)
    numbers: NDArray[np.int64] = parts[..., 0]
    for at in range(1, size):
        numbers = numbers | parts[..., at] << 8 * at
    return numbers


def look_up(table: Bytes, index: Integers) -> Bytes:
    """Take the rows of a table that an index names: [entries, m], [...] -> [..., m]."""
    xp = library(index)
    if xp is np:
        return table[index]
    rows: Bytes = xp.asarray(table, device=index.device)[xp.asarray(index, dtype=xp.int64)]
    return rows


def join(parts: Sequence[Integers]) -> Bytes:
    """Concatenate along the last axis."""
    joined: Bytes = library(parts[0]).concatenate(parts, -1)
    return joined


def signed(values: Integers) -> NDArray[np.int8]:
    """Read bytes as signed ones."""
    return values.view(library(values).int8)


def half_bytes(values: Floats) -> Bytes:
    """Round to half floats: [n, 1] -> [n, 2]."""
    return values.astype(np.float16).view(np.uint8)


def inverse(scale: Floats) -> Floats:
    """Divide 1 by the scale, or give 0 where the scale is 0."""
    return np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)


def round_half_away(values: Floats) -> Floats:
    """Round to the nearest whole number, halves away from zero."""
    whole = np.trunc(values)
    return whole + np.trunc(2 * (values - whole))


def to_integers(values: Floats) -> NDArray[np.int64]:
    """Drop the fraction; what is not finite (a weight over a subnormal scale) is 0."""
    return np.where(np.isfinite(values), values, 0).astype(np.int64)
