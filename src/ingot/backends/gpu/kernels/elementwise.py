"""Values changed number by number: activations, sums, queries scaled by position, parts of heads.

A program takes BLOCK numbers of one token's row.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.activation import activate, activate_pair
from ingot.backends.gpu.kernels.epilogue import store_rounded
from ingot.backends.gpu.kernels.order import start_next, wait_for_last


class Xielu(NamedTuple):
    """Its numbers: what multiplies the square above 0, the exponential below, and the rest."""

    rise: float
    fall: float
    slope: float


class Temper(NamedTuple):
    """1 + scale * log(1 + floor((position + offset) / length))."""

    scale: float
    length: int
    offset: int


@triton.jit
def activate_kernel(
    gate,
    up,
    out,
    width,
    half_scale,
    ACTIVATION: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """out = activation(gate) * up, or activation(gate)."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    place = tl.program_id(1).to(tl.int64) * width + at
    value = tl.load(gate + place, mask=inside, other=0.0)
    if up is not None:
        value = activate_pair(value, tl.load(up + place, mask=inside, other=0.0), ACTIVATION)
    else:
        value = activate(value, ACTIVATION)
    store_rounded(out + place, value, half_scale, inside)


@triton.jit
def xielu_kernel(x, out, xielu, width, half_scale, BLOCK: tl.constexpr, AHEAD: tl.constexpr):
    """out = slope * x + rise * x^2 above 0, slope * x + fall * (exp(x) - 1 - x) below."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    place = tl.program_id(1).to(tl.int64) * width + at
    value = tl.load(x + place, mask=inside, other=0.0)
    high, low = tl.maximum(value, 0.0), tl.minimum(value, 0.0)
    # Near 0 the difference of an exponential and 1 + x has no digits left: its series has them.
    series = low * low * (0.5 + low * (1.0 / 6.0 + low * (1.0 / 24.0 + low * (1.0 / 120.0))))
    curve = tl.where(low > -0.25, series, tl.exp(low) - 1.0 - low)
    value = xielu.slope * value + xielu.rise * high * high + xielu.fall * curve
    store_rounded(out + place, value, half_scale, inside)


@triton.jit
def add_kernel(left, right, out, width, BLOCK: tl.constexpr, AHEAD: tl.constexpr):
    """out = left + right."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    place = tl.program_id(1).to(tl.int64) * width + at
    value = tl.load(left + place, mask=inside, other=0.0)
    value += tl.load(right + place, mask=inside, other=0.0)
    tl.store(out + place, value, mask=inside)


@triton.jit
def temper_kernel(x, out, positions, temper, width, BLOCK: tl.constexpr, AHEAD: tl.constexpr):
    """Queries grow with their positions."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    token = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    periods = (tl.maximum(tl.load(positions + token), 0) + temper.offset) // temper.length
    factor = 1.0 + temper.scale * tl.log(1.0 + periods.to(tl.float32))
    value = tl.load(x + token * width + at, mask=inside, other=0.0)
    tl.store(out + token * width + at, value * factor, mask=inside)


@triton.jit
def pick_heads_kernel(
    x,
    out,
    first,
    head_size,  # of x
    size,  # of out
    x_width,
    width,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """out[h] = `size` elements of x[h], from `first` on."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    token = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    source = at // size * head_size + first + at % size
    value = tl.load(x + token * x_width + source, mask=inside, other=0.0)
    tl.store(out + token * width + at, value, mask=inside)
