"""Whole rows moved or changed one by one: embedding, selection, soft cap."""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.activation import tanh
from ingot.backends.gpu.kernels.order import start_next, wait_for_last
from ingot.backends.gpu.kernels.weights import (
    CHUNK,
    ROWS,
    SLICE,
    TILE,
    chunk_slices,
    one_extra,
)


@triton.jit
def _store(
    weights,  # [1, 16]
    factor,
    learned,
    learned_row,
    out,
    token,
    first,
    width,
    POSITIONS: tl.constexpr,
):
    """A slice of an embedding."""
    at = first + tl.arange(0, SLICE)[None, :]
    inside = at < width
    value = weights.to(tl.float32) * factor
    if POSITIONS:
        value += tl.load(learned + learned_row + at, mask=inside, other=0.0)
    tl.store(out + token * width + at, value, mask=inside)


@triton.jit
def embed_kernel(
    ids,  # -1 - r: what row r of the step before chose
    chosen,
    positions,
    codes,
    extras,
    scales,
    chunks,
    factor,
    learned,  # floats [positions, width]
    out,
    width,
    BITS: tl.constexpr,
    HIGH: tl.constexpr,
    FINE: tl.constexpr,
    MIN: tl.constexpr,
    TABLE: tl.constexpr,
    POSITIONS: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """out[token] = factor * row ids[token] + its position's.

    A program unpacks a chunk of one row.
    """
    wait_for_last(AHEAD)
    start_next(AHEAD)
    token = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(0)
    row = tl.load(ids + token)
    if row < 0:
        row = tl.maximum(tl.load(chosen + (-1 - row)), 0)  # it may have chosen nothing
    tile = (row // ROWS).to(tl.int64) + tl.zeros((1,), tl.int64)
    lane = row % ROWS + tl.zeros((1,), tl.int32)
    word = lane[:, None] * SLICE + tl.arange(0, SLICE)[None, :]
    CODE_TILES: tl.constexpr = BITS // 4
    PAIRS: tl.constexpr = (2 if FINE else 1) * (2 if MIN else 1)
    code_words = codes + (tile * chunks * (CODE_TILES * TILE))[:, None] + word
    extra = 0
    if HIGH > 0:
        SHARE: tl.constexpr = 4 // HIGH
        words = extras + (tile * ((chunks + SHARE - 1) // SHARE) * TILE)[:, None] + word
        extra = one_extra(words, chunk, HIGH)
    group_scales = scales + tile * chunks * (PAIRS * ROWS) + lane
    w0, w1, w2, w3 = chunk_slices(
        code_words, extra, group_scales, chunk, BITS, HIGH, FINE, MIN, TABLE, False
    )
    position = tl.maximum(tl.load(positions + token), 0).to(tl.int64)
    learned_row, first = position * width, chunk * CHUNK
    _store(w0, factor, learned, learned_row, out, token, first, width, POSITIONS)
    _store(w1, factor, learned, learned_row, out, token, first + 16, width, POSITIONS)
    _store(w2, factor, learned, learned_row, out, token, first + 32, width, POSITIONS)
    _store(w3, factor, learned, learned_row, out, token, first + 48, width, POSITIONS)


@triton.jit
def select_kernel(x, wanted, out, width, BLOCK: tl.constexpr, AHEAD: tl.constexpr):
    """out[row] = x[wanted[row]]."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    row = tl.program_id(1).to(tl.int64)
    source = tl.load(wanted + row).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    tl.store(out + row * width + at, tl.load(x + source * width + at, mask=inside), mask=inside)


@triton.jit
def softcap_kernel(x, out, width, cap, BLOCK: tl.constexpr, AHEAD: tl.constexpr):
    """out = cap * tanh(x / cap)."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    row = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    value = tl.load(x + row * width + at, mask=inside, other=0.0)
    tl.store(out + row * width + at, tanh(value / cap) * cap, mask=inside)
