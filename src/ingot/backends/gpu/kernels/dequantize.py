"""Unpack a matrix to half floats, row after row: what long prompts multiply with."""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.weights import (
    CHUNK,
    ROWS,
    SLICE,
    TILE,
    chunk_slices,
    one_extra,
)


@triton.jit
def dequantize_kernel(
    codes,
    extras,
    scales,
    chunks,
    out,
    BITS: tl.constexpr,
    HIGH: tl.constexpr,
    FINE: tl.constexpr,
    MIN: tl.constexpr,
    TABLE: tl.constexpr,
    ASM: tl.constexpr,
):
    """out [rows, 64 * chunks]: a program writes a chunk of a row tile."""
    tile = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(0)
    lane = tl.arange(0, ROWS)
    word = lane[:, None] * SLICE + tl.arange(0, SLICE)[None, :]
    CODE_TILES: tl.constexpr = BITS // 4
    PAIRS: tl.constexpr = (2 if FINE else 1) * (2 if MIN else 1)
    code_words = codes + tile * chunks * (CODE_TILES * TILE) + word
    extra = 0
    if HIGH > 0:
        SHARE: tl.constexpr = 4 // HIGH
        words = extras + tile * ((chunks + SHARE - 1) // SHARE) * TILE + word
        extra = one_extra(words, chunk, HIGH)
    group_scales = scales + tile * chunks * (PAIRS * ROWS) + lane
    w0, w1, w2, w3 = chunk_slices(
        code_words, extra, group_scales, chunk, BITS, HIGH, FINE, MIN, TABLE, ASM
    )
    stride = chunks * CHUNK
    place = out + (tile * ROWS + lane)[:, None] * stride + chunk * CHUNK
    column = tl.arange(0, SLICE)[None, :]
    tl.store(place + column, w0)
    tl.store(place + column + 16, w1)
    tl.store(place + column + 32, w2)
    tl.store(place + column + 48, w3)
