"""What happens to the sums of a linear layer before they are stored.

Sums [rows of the matrix, tokens] come in. Out goes, for every part of the matrix, its value:
scaled, with bias and residual; or the activation of a gate, times the row beside it, as halves.
Parts begin at multiples of the largest block, so a tile has rows of one part.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ingot.backends.gpu.kernels.activation import activate, activate_pair

HALF_LIMIT = tl.constexpr(65504.0)


class Epilogue(NamedTuple):
    """What sums are multiplied by, what is added, and where the values go."""

    factor: float
    bias: torch.Tensor | None  # a number for every row of the matrix
    residual: torch.Tensor | None
    out: torch.Tensor  # halves or floats
    half_scale: float  # of halves
    starts: tuple[int, ...]  # the first rows of the parts
    widths: tuple[int, ...]  # their rows
    bases: tuple[int, ...]  # where their values begin in `out`


@triton.jit
def to_half(x):
    """Round to half floats; what is too large becomes the largest."""
    return tl.minimum(tl.maximum(x, -HALF_LIMIT), HALF_LIMIT).to(tl.float16)


@triton.jit
def store_rounded(place, value, half_scale, mask):
    """Store a value that a linear layer reads next: as halves, scaled, or as it is."""
    if place.dtype.element_ty == tl.float16:
        tl.store(place, to_half(value * half_scale), mask=mask)
    else:
        tl.store(place, value, mask=mask)


@triton.jit
def part_of(row, epilogue):
    """The part that a row is of: its first row, its rows, and where its value begins."""
    first, width, base = 0, epilogue.widths[0], epilogue.bases[0]
    if len(epilogue.widths) > 1:
        second = row >= epilogue.starts[1]
        first = tl.where(second, epilogue.starts[1], first)
        width = tl.where(second, epilogue.widths[1], width)
        base = tl.where(second, epilogue.bases[1], base)
    if len(epilogue.widths) > 2:
        third = row >= epilogue.starts[2]
        first = tl.where(third, epilogue.starts[2], first)
        width = tl.where(third, epilogue.widths[2], width)
        base = tl.where(third, epilogue.bases[2], base)
    return first, width, base


@triton.jit
def paired_rows(block, BLOCK: tl.constexpr, GATED: tl.constexpr):
    """The rows of a block, in the order in which a program of many tokens takes them.

    A gate and the row beside it are eight apart, so that the matrix units leave both sums in the
    registers of one thread.
    """
    row = tl.arange(0, BLOCK)
    if GATED:
        row = row // 16 * 16 + row % 8 * 2 + row // 8 % 2
    return block * BLOCK + row


@triton.jit
def additions(row, token, tokens, part, epilogue):
    """Bias and residual of a tile, [tokens, rows]; asked for early, they are there in time."""
    added = tl.zeros((token.shape[0], row.shape[0]), tl.float32)
    at = row - part[0]
    if epilogue.bias is not None:
        added += tl.load(epilogue.bias + row)[None, :]
    if epilogue.residual is not None:
        mask = (at < part[1])[None, :] & (token < tokens)[:, None]
        place = epilogue.residual + token[:, None] * part[1] + at[None, :]
        added += tl.load(place, mask=mask, other=0.0)
    return added


@triton.jit
def finish(
    sums,  # [rows, tokens]
    added,  # [tokens, rows]
    begin,  # the first row of the block, of the whole matrix
    token,
    tokens,
    part,
    epilogue,
    ACTIVATION: tl.constexpr,
    GATED: tl.constexpr,
    PAIRED: tl.constexpr = False,  # whether rows are in the order of `paired_rows`
):
    """Store the sums of a tile, all rows of which are of one part."""
    first, width, base = part
    ROWS: tl.constexpr = sums.shape[0]
    COLS: tl.constexpr = sums.shape[1]
    if GATED and PAIRED:
        value = sums * epilogue.factor
        if epilogue.bias is not None:
            value += tl.trans(added)
        eights = tl.permute(tl.reshape(value, (ROWS // 16, 2, 8, COLS)), (0, 2, 3, 1))
        gate, up = tl.split(eights)
        value = activate_pair(gate, up, ACTIVATION)
        value = tl.trans(tl.reshape(value, (ROWS // 2, COLS)))
    else:
        value = tl.trans(sums * epilogue.factor)  # [tokens, rows]
        if epilogue.bias is not None or epilogue.residual is not None:
            value += added
        if GATED:
            gate, up = tl.split(tl.reshape(value, (COLS, ROWS // 2, 2)))
            value = activate_pair(gate, up, ACTIVATION)
        else:
            value = activate(value, ACTIVATION)
    if GATED:
        at = tl.multiple_of((begin - first) // 2, ROWS // 2) + tl.arange(0, ROWS // 2)
    else:
        at = begin - first + tl.arange(0, ROWS)
    place = base + token[:, None] * width + at[None, :]
    mask = (at < width)[None, :] & (token < tokens)[:, None]
    store_rounded(epilogue.out + place, value, epilogue.half_scale, mask)
