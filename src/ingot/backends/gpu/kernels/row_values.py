"""Rows scaled, cut to their peaks, or rotated head by head."""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.heads import rotated_heads
from ingot.backends.gpu.kernels.order import start_next, wait_for_last


@triton.jit
def scale_kernel(
    x,
    weight,  # a number for each element, or one for all
    out,
    width,
    factor,
    ONE: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """out = factor * x * weight."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    token = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    value = tl.load(x + token * width + at, mask=inside, other=0.0) * factor
    if weight is not None:
        if ONE:
            value *= tl.load(weight)
        else:
            value *= tl.load(weight + at, mask=inside, other=0.0)
    tl.store(out + token * width + at, value, mask=inside)


@triton.jit
def keep_peaks_kernel(
    x,
    out,
    width,
    deviations,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """out = max(x - mean - deviations * standard deviation, 0); one row a program."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    token = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < width
    value = tl.load(x + token * width + at, mask=inside, other=0.0)
    mean = tl.sum(value) / width
    away = tl.where(inside, value - mean, 0.0)
    deviation = tl.sqrt(tl.sum(away * away) / width)
    peaks = tl.maximum(away - deviations * deviation, 0.0)
    tl.store(out + token * width + at, peaks, mask=inside)


@triton.jit
def rope_kernel(
    x,
    out,
    positions,
    norm,  # none
    rope,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    HEAD: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """One head of one token a program."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    token = tl.program_id(1).to(tl.int64)
    position = tl.maximum(tl.load(positions + token), 0)
    at = tl.arange(0, PADDED)
    one = tl.zeros((1,), tl.int64)
    start = one + (token * tl.num_programs(0) + tl.program_id(0)) * SIZE
    turned = rotated_heads(
        x, start, start >= 0, at, norm, one, rope, position, SIZE, 0, HEAD
    )  # fmt: skip
    tl.store(out + start[:, None] + at[None, :], turned, mask=(at < SIZE)[None, :])
