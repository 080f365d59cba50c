"""Where a head's keys and values lie in the cache, and how they are read and written.

A block holds 32 positions: of each head first the keys, then the values (see
`ingot.graph.kv_layout`). Floats lie position by position. Q8_0 here keeps the block's numbers apart
from their scales: 32 rows of signed bytes, then a half for every 32 of them, in the same room. So
does FP8, whose bytes have no sign: a half for every row (see `kernels.fp8`).
`pool` is the memory as elements of the type, `pool_scales` the same memory as halves.
"""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.fp8 import row_factor, to_codes, to_halves

BLOCK_TOKENS = tl.constexpr(32)
Q8_0_GROUP = tl.constexpr(32)


@triton.jit
def side_start(block, layer_start, block_stride, head, VALUES: tl.constexpr, SIDE: tl.constexpr):
    """The first element of a head's keys or values in a block; SIDE elements each."""
    return block.to(tl.int64) * block_stride + layer_start + (2 * head + VALUES) * SIDE


@triton.jit
def write_row(
    pool, pool_scales, start, slot, at, value, inside, SIZE: tl.constexpr, Q8: tl.constexpr
):
    """Store one position of a head."""
    if Q8:
        GROUPS: tl.constexpr = value.shape[0] // Q8_0_GROUP
        runs = tl.reshape(value, (GROUPS, Q8_0_GROUP))
        scale = tl.max(tl.abs(runs), axis=1) / 127.0
        inverse = tl.where(scale > 0, 1.0 / scale, 0.0)
        steps = runs * inverse[:, None]
        whole = tl.floor(tl.abs(steps) + 0.5)
        whole = tl.where(steps < 0, -whole, whole)
        number = tl.reshape(whole, (value.shape[0],)).to(tl.int8)
        tl.store(pool + start + slot * SIZE + at, number, mask=inside)
        group = tl.arange(0, GROUPS)
        scales = (start + BLOCK_TOKENS * SIZE) // 2 + slot * (SIZE // Q8_0_GROUP)
        tl.store(
            pool_scales + scales + group, scale.to(tl.float16), mask=group < SIZE // Q8_0_GROUP
        )
    elif pool.dtype.element_ty == tl.uint8:
        value = tl.where(inside, value, 0.0)
        power, factor = row_factor(value)
        tl.store(pool + start + slot * SIZE + at, to_codes(value, power), mask=inside)
        place = pool_scales + (start + BLOCK_TOKENS * SIZE) // 2 + slot
        tl.store(place, factor.to(tl.int16).to(tl.float16, bitcast=True))
    else:
        tl.store(pool + start + slot * SIZE + at, value.to(pool.dtype.element_ty), mask=inside)


@triton.jit
def read_tile(
    pool,
    pool_scales,
    start,
    slot,
    seen,
    at,
    SIZE: tl.constexpr,
    Q8: tl.constexpr,
    EVEN: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Keys or values of some positions: [positions, SIZE padded]; unseen ones are 0."""
    place = start[:, None] + slot[:, None] * SIZE + at[None, :]
    if EVEN:
        mask = seen[:, None]
    else:
        mask = seen[:, None] & (at < SIZE)[None, :]
    if Q8:
        row = (start + BLOCK_TOKENS * SIZE) // 2 + slot * (SIZE // Q8_0_GROUP)
        scale_at = pool_scales + row[:, None] + (at // Q8_0_GROUP)[None, :]
        if EVEN and not MASKED:
            return tl.load(pool + place).to(tl.float16) * tl.load(scale_at)
        else:
            number = tl.load(pool + place, mask=mask, other=0).to(tl.float16)
            return number * tl.load(scale_at, mask=mask, other=0.0)
    elif pool.dtype.element_ty == tl.uint8:
        factor_at = pool_scales + (start + BLOCK_TOKENS * SIZE) // 2 + slot
        if EVEN and not MASKED:
            return to_halves(tl.load(pool + place)) * tl.load(factor_at)[:, None]
        else:
            number = to_halves(tl.load(pool + place, mask=mask, other=0))
            return number * tl.load(factor_at, mask=seen, other=0.0)[:, None]
    elif EVEN and not MASKED:
        return tl.load(pool + place)
    else:
        return tl.load(pool + place, mask=mask, other=0.0)
