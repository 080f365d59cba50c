"""What happens to the sums of a linear map before they are stored.

Sums [rows of the matrix, tokens] come in. Out goes, for every part of the matrix, its value:
scaled, with bias and residual; or the activation of a gate, times the row beside it, as halves.
A tile may hold rows of several parts: each row knows its place.
"""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.activation import activate

HALF_LIMIT = tl.constexpr(65504.0)


@triton.jit
def to_half(x):
    """Round to half floats; what is too large becomes the largest."""
    return tl.minimum(tl.maximum(x, -HALF_LIMIT), HALF_LIMIT).to(tl.float16)


@triton.jit
def store_rounded(place, value, half_scale, mask, HALF: tl.constexpr):
    """Store a value that a linear map reads next: as halves, scaled, or as it is."""
    if HALF:
        tl.store(place, to_half(value * half_scale), mask=mask)
    else:
        tl.store(place, value, mask=mask)


@triton.jit
def finish(
    sums,  # [ROWS, COLS]
    row,  # [ROWS]: of the whole matrix
    token,  # [COLS]
    tokens,
    factor,
    bias,
    residual,
    out,
    half_scale,
    places,  # int32 [parts, 3]: first row, rows, where its value begins in `out`
    PARTS: tl.constexpr,
    BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr,
    ACTIVATION: tl.constexpr,
    GATED: tl.constexpr,
    HALF: tl.constexpr,
):
    """Store the sums of a tile."""
    value = tl.trans(sums * factor)  # [COLS, ROWS]
    if BIAS:
        value += tl.load(bias + row)[None, :]
    first = tl.load(places)
    width = tl.load(places + 1)
    base = tl.load(places + 2)
    if GATED:
        COLS: tl.constexpr = value.shape[0]
        PAIRS: tl.constexpr = value.shape[1] // 2
        gate, up = tl.split(tl.reshape(value, (COLS, PAIRS, 2)))
        value = activate(gate, ACTIVATION) * up
        number, _ = tl.split(tl.reshape(row, (PAIRS, 2)))
        at = number // 2
        inside = at < width
        place = base + token[:, None] * width + at[None, :]
    else:
        value = activate(value, ACTIVATION)
        at = row
        inside = (at >= first) & (at < first + width)
        start = base + tl.zeros_like(at) - first
        stride = width + tl.zeros_like(at)
        for part in tl.static_range(1, PARTS):
            begin = tl.load(places + 3 * part)
            size = tl.load(places + 3 * part + 1)
            here = (at >= begin) & (at < begin + size)
            start = tl.where(here, tl.load(places + 3 * part + 2) - begin, start)
            stride = tl.where(here, size, stride)
            inside |= here
        place = start[None, :] + token[:, None] * stride[None, :] + at[None, :]
    mask = inside[None, :] & (token < tokens)[:, None]
    if RESIDUAL:
        value += tl.load(residual + token[:, None] * width + at[None, :], mask=mask)
    store_rounded(out + place, value, half_scale, mask, HALF)
