"""Rows normalized: as halves for a linear map, or as floats with a residual added."""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.epilogue import to_half
from ingot.backends.gpu.kernels.order import start_next, wait_for_last


@triton.jit
def norm_kernel(
    x,
    weight,
    bias,
    residual,
    out,
    width,
    stride,
    epsilon,
    scale,
    BLOCK: tl.constexpr,
    NORM: tl.constexpr,  # 0: none, 1: RMS, 2: layer
    BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr,
    HALF: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """One row a program; `out` has rows of `stride`, and zeros behind the width."""
    token = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < width
    if NORM > 0:
        gain = tl.load(weight + at, mask=inside, other=0.0)
    wait_for_last(AHEAD)
    start_next(AHEAD)
    value = tl.load(x + token * width + at, mask=inside, other=0.0)
    if NORM == 2:
        value = tl.where(inside, value - tl.sum(value) / width, 0.0)
    if NORM > 0:
        value = value / tl.sqrt(tl.sum(value * value) / width + epsilon)
        value *= gain
        if BIAS:
            value += tl.load(bias + at, mask=inside, other=0.0)
    if RESIDUAL:
        value += tl.load(residual + token * width + at, mask=inside, other=0.0)
    if HALF:
        tl.store(out + token * stride + at, to_half(value * scale), mask=at < stride)
    else:
        tl.store(out + token * stride + at, value, mask=at < stride)
