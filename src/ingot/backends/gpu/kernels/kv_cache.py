"""Where a head's keys and values lie in the cache, and how they are read and written.

A block holds 32 positions: for each head first the keys, then the values (see
`ingot.graph.kv_layout`). Floats lie position by position. Q8_0 and FP8 keep numbers and scales
apart here: 32 rows of bytes, then the scales as halves, in the same memory. Q8_0 has signed bytes
and a scale for every 32 of them.

FP8 has E4M3 numbers (a sign, 4 bits of exponent, 3 of mantissa) and one factor a row: the power of
two that brings the row's largest number to 128..256. Without it, numbers above 448 would be cut off
and those below 2 ** -6 would lose bits, and keys and values of some models are that large or small.
A power of two costs no bits and no division, so every device stores the same bytes. A row that is
not finite reads as NaN, as it would with half floats. All of it is integer arithmetic and exact
products, because not every device can convert E4M3, and some have an E4M3 with different codes.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl

BLOCK_TOKENS = tl.constexpr(32)
Q8_0_GROUP = tl.constexpr(32)
LEAST_FACTOR = tl.constexpr(-14)  # as a power of two: what half floats hold exactly
MOST_FACTOR = tl.constexpr(15)
LARGEST = tl.constexpr(0x7E)  # the code of 448; the next one is NaN
HALF_NAN = tl.constexpr(0x7E00)


class CacheView(NamedTuple):
    """A layer's part of the cache, in elements of its type, and the blocks of each sequence."""

    table: torch.Tensor  # int32 [sequences, table_stride]
    table_stride: int
    pool: torch.Tensor
    scales: torch.Tensor  # the same memory as halves
    block_stride: int
    layer_start: int


@dataclass(frozen=True, slots=True)
class CacheForm:
    """What a kernel is compiled for."""

    size: int  # of a head
    padded: int  # the next power of two
    side: int  # elements of a head's keys (or values) in a block
    q8: bool

    @property
    def even(self) -> bool:
        """Whether heads need no padding."""
        return self.size == self.padded


@triton.jit
def side_start(block, cache, head, VALUES: tl.constexpr, FORM: tl.constexpr):
    """The first element of a head's keys or values in a block."""
    return (
        block.to(tl.int64) * cache.block_stride
        + cache.layer_start
        + (2 * head + VALUES) * FORM.side
    )


@triton.jit
def write_row(cache, start, slot, at, value, inside, FORM: tl.constexpr):
    """Store one position of a head."""
    place = cache.pool + start + slot * FORM.size + at
    if FORM.q8:
        GROUPS: tl.constexpr = value.shape[0] // Q8_0_GROUP
        runs = tl.reshape(value, (GROUPS, Q8_0_GROUP))
        scale = tl.max(tl.abs(runs), axis=1) / 127.0
        inverse = tl.where(scale > 0, 1.0 / scale, 0.0)
        steps = runs * inverse[:, None]
        whole = tl.floor(tl.abs(steps) + 0.5)
        whole = tl.where(steps < 0, -whole, whole)
        number = tl.reshape(whole, (value.shape[0],)).to(tl.int8)
        tl.store(place, number, mask=inside)
        group = tl.arange(0, GROUPS)
        scales = (start + BLOCK_TOKENS * FORM.size) // 2 + slot * (FORM.size // Q8_0_GROUP)
        known = group < FORM.size // Q8_0_GROUP
        tl.store(cache.scales + scales + group, scale.to(tl.float16), mask=known)
    elif cache.pool.dtype.element_ty == tl.uint8:
        value = tl.where(inside, value, 0.0)
        power, factor = row_factor(value)
        tl.store(place, to_codes(value, power), mask=inside)
        factor_at = cache.scales + (start + BLOCK_TOKENS * FORM.size) // 2 + slot
        tl.store(factor_at, factor.to(tl.int16).to(tl.float16, bitcast=True))
    else:
        tl.store(place, value.to(cache.pool.dtype.element_ty), mask=inside)


@triton.jit
def read_tile(cache, start, slot, seen, at, MASKED: tl.constexpr, FORM: tl.constexpr):
    """Keys or values of some positions: [positions, padded size]; unseen ones are 0."""
    place = cache.pool + (start[:, None] + slot[:, None] * FORM.size + at[None, :])
    if FORM.even:
        mask = seen[:, None]
    else:
        mask = seen[:, None] & (at < FORM.size)[None, :]
    if FORM.q8:
        row = (start + BLOCK_TOKENS * FORM.size) // 2 + slot * (FORM.size // Q8_0_GROUP)
        scale_at = cache.scales + row[:, None] + (at // Q8_0_GROUP)[None, :]
        if FORM.even and not MASKED:
            return tl.load(place).to(tl.float16) * tl.load(scale_at)
        else:
            number = tl.load(place, mask=mask, other=0).to(tl.float16)
            return number * tl.load(scale_at, mask=mask, other=0.0)
    elif cache.pool.dtype.element_ty == tl.uint8:
        factor_at = cache.scales + (start + BLOCK_TOKENS * FORM.size) // 2 + slot
        if FORM.even and not MASKED:
            return to_halves(tl.load(place)) * tl.load(factor_at)[:, None]
        else:
            number = to_halves(tl.load(place, mask=mask, other=0))
            return number * tl.load(factor_at, mask=seen, other=0.0)[:, None]
    elif FORM.even and not MASKED:
        return tl.load(place)
    else:
        return tl.load(place, mask=mask, other=0.0)


@triton.jit
def row_factor(value):
    """The power of two, 2 ** 8 times what codes are multiplied by; and its bits as a half."""
    bits = value.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    exponent = tl.max(bits, axis=0) >> 23  # of the largest; 255: not finite
    power = tl.minimum(tl.maximum(exponent - 126, LEAST_FACTOR), MOST_FACTOR)
    return power, tl.where(exponent == 255, HALF_NAN, (power + 15) << 10)


@triton.jit
def to_codes(value, power):
    """The nearest codes of value / (factor / 256), ties to even, none beyond the largest."""
    bits = (value * ((135 - power) << 23).to(tl.float32, bitcast=True)).to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    normal = ((size + 0x7FFFF + ((size >> 20) & 1)) >> 20) - (120 << 3)
    # Below 2 ** -6 codes are multiples of 2 ** -9: so is what is left of a number beside 2 ** 14.
    beside = size.to(tl.float32, bitcast=True) + 16384.0
    small = beside.to(tl.int32, bitcast=True) - 0x46800000
    code = tl.minimum(tl.where(size < 0x3C800000, small, normal), LARGEST)
    return (code | ((bits >> 24) & 0x80)).to(tl.uint8)


@triton.jit
def to_halves(code):
    """2 ** -8 of what codes stand for: their bits are those of a half with a short exponent."""
    signed = code.to(tl.int8, bitcast=True).to(tl.int16)
    return ((signed << 7) & -16385).to(tl.float16, bitcast=True)
