"""Rows put together: what experts found, weighed; a row behind a gate."""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.epilogue import to_half
from ingot.backends.gpu.kernels.order import start_next, wait_for_last


@triton.jit
def mix_kernel(
    parts,  # [pairs, width]
    choice,
    residual,
    out,
    norm_weight,
    epsilon,
    normed,  # halves, rows of normed_stride, zeros behind the width
    normed_stride,
    counts,
    width,
    experts,
    USED: tl.constexpr,
    RESIDUAL: tl.constexpr,
    NORM: tl.constexpr,
    EXPERTS: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """out = the parts of a token's experts, each times its weight, added in their order.

    With NORM, what the next layer reads is made here, too. The counts of pairs, which have served
    their purpose, become 0 for the next layer.
    """
    token = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < width
    if NORM:
        gain = tl.load(norm_weight + at, mask=inside, other=0.0)
    wait_for_last(AHEAD)
    start_next(AHEAD)
    value = tl.zeros((BLOCK,), tl.float32)
    if RESIDUAL:
        value += tl.load(residual + token * width + at, mask=inside, other=0.0)
    for number in tl.static_range(USED):
        weight = tl.load(choice + token * (2 * USED) + USED + number)
        part = tl.load(parts + (token * USED + number) * width + at, mask=inside, other=0.0)
        value += weight * part
    tl.store(out + token * width + at, value, mask=inside)
    if NORM:
        value = value / tl.sqrt(tl.sum(value * value) / width + epsilon)
        value *= gain
        tl.store(normed + token * normed_stride + at, to_half(value), mask=at < normed_stride)
    if token == 0:
        expert = tl.arange(0, EXPERTS)
        tl.store(counts + expert, tl.zeros((EXPERTS,), tl.int32), mask=expert < experts)


@triton.jit
def gate_rows_kernel(
    x,
    gate,
    residual,
    out,
    width,
    RESIDUAL: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """out = sigmoid(gate) * x + residual; a token's gate is one number."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    token = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    share = 1.0 / (1.0 + tl.exp(-tl.load(gate + token)))
    value = tl.load(x + token * width + at, mask=inside, other=0.0) * share
    if RESIDUAL:
        value += tl.load(residual + token * width + at, mask=inside, other=0.0)
    tl.store(out + token * width + at, value, mask=inside)
