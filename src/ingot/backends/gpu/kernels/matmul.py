"""Linear layers of long prompts: unpack a matrix to half floats, then multiply it.

out = epilogue(weights @ x): weights [rows, columns] as `dequantize_kernel` leaves them, x [tokens,
columns]. Products are added in the same order as in `linear_kernel`, column by column.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ingot.backends.gpu.kernels.epilogue import additions, finish, part_of
from ingot.backends.gpu.kernels.weights import (
    CHUNK,
    ROWS,
    SLICE,
    TILE_WORDS,
    chunk_slices,
    one_extra,
)


class Unpacked(NamedTuple):
    """A matrix as half floats [rows, stride]."""

    weights: torch.Tensor
    stride: int
    rows: int
    share: int  # columns that a program of the decode kernel takes


@triton.jit
def dequantize_kernel(
    weights,
    out,
    FORM: tl.constexpr,
    ASM: tl.constexpr,
):
    """out [rows, 64 * chunks]: a program writes a chunk of a row tile."""
    tile = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(0)
    chunks = weights.chunks
    lane = tl.arange(0, ROWS)
    word = lane[:, None] * SLICE + tl.arange(0, SLICE)[None, :]
    code_words = weights.codes + tile * chunks * (FORM.code_tiles * TILE_WORDS) + word
    extra = 0
    if FORM.high > 0:
        shared = (chunks + FORM.chunk_multiple - 1) // FORM.chunk_multiple
        extra = one_extra(weights.extras + tile * shared * TILE_WORDS + word, chunk, FORM)
    group_scales = weights.scales + tile * chunks * (FORM.scale_pairs * ROWS) + lane
    w0, w1, w2, w3 = chunk_slices(code_words, extra, group_scales, chunk, FORM, ASM)
    stride = chunks * CHUNK
    place = out + (tile * ROWS + lane)[:, None] * stride + chunk * CHUNK
    column = tl.arange(0, SLICE)[None, :]
    tl.store(place + column, w0)
    tl.store(place + column + 16, w1)
    tl.store(place + column + 32, w2)
    tl.store(place + column + 48, w3)


@triton.jit(do_not_specialize=["tokens"])
def matmul_kernel(
    inputs,
    tokens,
    matrix,
    epilogue,
    TILE: tl.constexpr,
    ACTIVATION: tl.constexpr,
    GATED: tl.constexpr,
):
    """A program takes a tile of rows and tokens; neighbours share rows, so these stay in cache.

    If decoding shares the columns out for this matrix (`TILE.splits`), shares are added up one by
    one here, too, so that a token's result does not depend on how many others there are.
    """
    BLOCK: tl.constexpr = TILE.rows
    COLS: tl.constexpr = TILE.columns
    token_blocks = tl.cdiv(tokens, COLS)
    block = tl.program_id(0) // token_blocks
    row = block * BLOCK + tl.arange(0, BLOCK)
    token = tl.program_id(0) % token_blocks * COLS + tl.arange(0, COLS)
    live = token < tokens
    depth = tl.arange(0, CHUNK)
    x_at = inputs.x + token.to(tl.int64)[None, :] * inputs.stride + depth[:, None]
    inside = tl.minimum(row, matrix.rows - 1)
    w_at = matrix.weights + inside.to(tl.int64)[:, None] * matrix.stride + depth[None, :]
    sums = tl.zeros((BLOCK, COLS), tl.float32)
    if TILE.splits == 1:
        sums = _columns(sums, 0, matrix.stride, w_at, x_at, live, depth, inputs, TILE)
    else:
        for number in range(TILE.splits):
            begin = number * matrix.share
            end = tl.minimum(begin + matrix.share, matrix.stride)
            nothing = tl.zeros((BLOCK, COLS), tl.float32)
            sums += _columns(nothing, begin, end, w_at, x_at, live, depth, inputs, TILE)
    part = part_of(block * BLOCK, epilogue)
    added = additions(row, token, tokens, part, epilogue)
    finish(sums, added, row, token, tokens, part, epilogue, ACTIVATION, GATED)


@triton.jit
def _columns(
    sums,
    begin,
    end,
    w_at,
    x_at,
    live,
    depth,
    inputs,
    TILE: tl.constexpr,
):
    """The sums, and the products of some columns."""
    for column in tl.range(begin, end, CHUNK, num_stages=TILE.stages):
        w = tl.load(w_at + column)
        if TILE.even:
            x = tl.load(x_at + column, mask=live[None, :], other=0.0)
        else:
            mask = live[None, :] & (column + depth < inputs.columns)[:, None]
            x = tl.load(x_at + column, mask=mask, other=0.0)
        sums = tl.dot(w, x, sums)
    return sums
