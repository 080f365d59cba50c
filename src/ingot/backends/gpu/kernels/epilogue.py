"""What happens to the sums of a linear map before they are stored.

Sums [rows of the matrix, tokens] come in. Out goes, for every part of the matrix, its value:
scaled, with bias and residual; or the activation of a gate, times the row beside it, as halves.
Parts begin at multiples of the largest block, so a tile has rows of one.
"""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.activation import activate, activate_pair

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
def place_of(row, first1, first2, width0, width1, width2, base0, base1, base2, PARTS: tl.constexpr):
    """The part that a row is of: its first row, its rows, and where its value begins."""
    first, width, base = 0, width0, base0
    if PARTS > 1:
        second = row >= first1
        first = tl.where(second, first1, first)
        width = tl.where(second, width1, width)
        base = tl.where(second, base1, base)
    if PARTS > 2:
        third = row >= first2
        first = tl.where(third, first2, first)
        width = tl.where(third, width2, width)
        base = tl.where(third, base2, base)
    return first, width, base


@triton.jit
def additions(
    row,
    token,
    tokens,
    first,
    width,
    bias,
    residual,
    BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr,
):
    """Bias and residual of a tile, [tokens, rows]; asked for early, they are there in time."""
    added = tl.zeros((token.shape[0], row.shape[0]), tl.float32)
    at = row - first
    if BIAS:
        added += tl.load(bias + row)[None, :]
    if RESIDUAL:
        mask = (at < width)[None, :] & (token < tokens)[:, None]
        added += tl.load(residual + token[:, None] * width + at[None, :], mask=mask, other=0.0)
    return added


@triton.jit
def finish(
    sums,  # [ROWS, COLS]
    added,  # [COLS, ROWS]
    row,  # [ROWS]: of the whole matrix
    token,  # [COLS]
    tokens,
    first,
    width,
    base,
    factor,
    out,
    half_scale,
    ADDED: tl.constexpr,
    ACTIVATION: tl.constexpr,
    GATED: tl.constexpr,
    HALF: tl.constexpr,
):
    """Store the sums of a tile, all rows of which are of one part."""
    value = tl.trans(sums * factor)  # [COLS, ROWS]
    if ADDED:
        value += added
    at = row - first
    if GATED:
        COLS: tl.constexpr = value.shape[0]
        PAIRS: tl.constexpr = value.shape[1] // 2
        gate, up = tl.split(tl.reshape(value, (COLS, PAIRS, 2)))
        value = activate_pair(gate, up, ACTIVATION)
        at, _ = tl.split(tl.reshape(at, (PAIRS, 2)))
        at = at // 2
    else:
        value = activate(value, ACTIVATION)
    place = base + token[:, None] * width + at[None, :]
    mask = (at < width)[None, :] & (token < tokens)[:, None]
    store_rounded(out + place, value, half_scale, mask, HALF)
