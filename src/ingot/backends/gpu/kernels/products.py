"""Products of some rows of a quantized matrix with some inputs: what linear layers are made of.

They are added up chunk by chunk on the matrix units, in float32. The result for an input depends on
neither the other inputs nor their number: chunks are added in the same order, 16 columns at a time,
however many rows and inputs a program takes.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ingot.backends.gpu.kernels.weights import (
    CHUNK,
    ROWS,
    SLICE,
    TILE_WORDS,
    chunk_slices,
    four_extras,
    two_extras,
)


class Rows(NamedTuple):
    """Inputs of a linear layer: halves, one row a token."""

    x: torch.Tensor
    stride: int
    columns: int  # of a row that count


@dataclass(frozen=True, slots=True)
class ProductTile:
    """What a program takes."""

    rows: int
    columns: int  # inputs
    stages: int  # steps of its loop whose loads are under way
    even: bool  # whether inputs fill whole chunks
    unroll: int = 1  # chunks of a step
    splits: int = 1  # shares of the columns of the matrix
    group: int = 1  # shares that are added up before others


@triton.jit
def _inputs(inputs, start, live, column, EVEN: tl.constexpr):
    """A slice of the inputs, [16, inputs]."""
    at = column + tl.arange(0, SLICE)
    place = inputs.x + start[None, :] + at[:, None]
    if EVEN:
        return tl.load(place, mask=live[None, :], other=0.0)
    else:
        return tl.load(place, mask=live[None, :] & (at < inputs.columns)[:, None], other=0.0)


@triton.jit
def _chunk(w0, w1, w2, w3):
    """Four slices as one, [rows, 64]: neither moves from its registers."""
    pairs = tl.join(tl.join(w0, w1), tl.join(w2, w3))  # [rows, 16, 2, 2]
    return tl.reshape(tl.permute(pairs, (0, 3, 2, 1)), (w0.shape[0], CHUNK))


@triton.jit
def _chunk_inputs(inputs, start, live, column, EVEN: tl.constexpr):
    """A chunk of the inputs, [64, inputs]."""
    at = column + tl.arange(0, CHUNK)
    place = inputs.x + start[None, :] + at[:, None]
    if EVEN:
        return tl.load(place, mask=live[None, :], other=0.0)
    else:
        return tl.load(place, mask=live[None, :] & (at < inputs.columns)[:, None], other=0.0)


@triton.jit
def products(
    inputs,
    start,  # [inputs]: where each begins
    live,  # [inputs]
    weights,
    tile,  # [rows]: the row tile of each
    lane,  # [rows]: its row in it
    begin,  # steps of some chunks
    end,
    TILE: tl.constexpr,
    FORM: tl.constexpr,
    ASM: tl.constexpr,
    WHOLE: tl.constexpr = False,
):
    """The sums [rows, inputs] over the chunks of some steps.

    With WHOLE a chunk is one product, not one for each of its slices: better for many inputs.
    """
    UNROLL: tl.constexpr = TILE.unroll
    word = lane[:, None] * SLICE + tl.arange(0, SLICE)[None, :]
    chunks = weights.chunks
    code_words = weights.codes + (tile * chunks * (FORM.code_tiles * TILE_WORDS))[:, None] + word
    extra_words = code_words
    if FORM.high > 0:
        shared = (chunks + FORM.chunk_multiple - 1) // FORM.chunk_multiple
        extra_words = weights.extras + (tile * shared * TILE_WORDS)[:, None] + word
    group_scales = weights.scales + tile * chunks * (FORM.scale_pairs * ROWS) + lane
    sums = tl.zeros((tile.shape[0], start.shape[0]), tl.float32)
    for step in tl.range(begin, end, num_stages=TILE.stages):
        for part in tl.static_range(UNROLL):
            chunk = step * UNROLL + part
            if FORM.high == 2:
                if part % 2 == 0:
                    e0, e1 = two_extras(extra_words + chunk // 2 * TILE_WORDS, ASM)
                    extra = e0
                else:
                    extra = e1
            elif FORM.high == 1:
                if part % 4 == 0:
                    e0, e1, e2, e3 = four_extras(extra_words + chunk // 4 * TILE_WORDS, ASM)
                    extra = e0
                elif part % 4 == 1:
                    extra = e1
                elif part % 4 == 2:
                    extra = e2
                else:
                    extra = e3
            else:
                extra = 0
            w0, w1, w2, w3 = chunk_slices(code_words, extra, group_scales, chunk, FORM, ASM)
            column = chunk * CHUNK
            if WHOLE:
                w = _chunk(w0, w1, w2, w3)
                sums = tl.dot(w, _chunk_inputs(inputs, start, live, column, TILE.even), sums)
            else:
                sums = tl.dot(w0, _inputs(inputs, start, live, column, TILE.even), sums)
                sums = tl.dot(w1, _inputs(inputs, start, live, column + 16, TILE.even), sums)
                sums = tl.dot(w2, _inputs(inputs, start, live, column + 32, TILE.even), sums)
                sums = tl.dot(w3, _inputs(inputs, start, live, column + 48, TILE.even), sums)
    return sums
