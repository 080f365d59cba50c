"""Norms of parts of a row: of every head, or of every group of channels."""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.epilogue import to_half
from ingot.backends.gpu.kernels.order import start_next, wait_for_last


@triton.jit
def norm_runs_kernel(
    x,
    norm,
    residual,
    out,
    width,
    run,
    weight_stride,  # from the weights of a run to those of the next
    stride,
    scale,  # of halves
    NORM: tl.constexpr,  # 1: RMS norm, 2: layer norm
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """One run of one row a program. `out` has rows of `stride`; one more program fills them up."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    number = tl.program_id(0)
    token = tl.program_id(1).to(tl.int64)
    at = tl.arange(0, BLOCK)
    first = number * run
    end = tl.where(first < width, first + run, stride)
    inside = (at < run) & (first < width)
    value = tl.load(x + token * width + first + at, mask=inside, other=0.0)
    if NORM == 2:
        value = tl.where(inside, value - tl.sum(value) / run, 0.0)
    value = value / tl.sqrt(tl.sum(value * value) / run + norm.epsilon)
    weights = number * weight_stride + at
    if norm.weight is not None:
        value *= tl.load(norm.weight + weights, mask=inside, other=0.0)
    if norm.bias is not None:
        value += tl.load(norm.bias + weights, mask=inside, other=0.0)
    if residual is not None:
        value += tl.load(residual + token * width + first + at, mask=inside, other=0.0)
    place = out + token * stride + first + at
    if out.dtype.element_ty == tl.float16:
        tl.store(place, to_half(value * scale), mask=first + at < end)
    else:
        tl.store(place, value, mask=first + at < end)
