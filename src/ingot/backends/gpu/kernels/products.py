"""Products of some rows of a quantized matrix with some inputs: what linear maps are made of.

They are added up chunk by chunk on the matrix units, in float32. What an input gets depends on
neither the other inputs nor how many there are: chunks are added in the same order, 16 columns at a
time, however many rows and inputs a program takes.
"""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.weights import (
    CHUNK,
    ROWS,
    SLICE,
    TILE,
    chunk_slices,
    four_extras,
    two_extras,
)


@triton.jit
def _inputs(x, start, live, column, columns, EVEN: tl.constexpr):
    """A slice of the inputs, [16, inputs]."""
    at = column + tl.arange(0, SLICE)
    place = x + start[None, :] + at[:, None]
    if EVEN:
        return tl.load(place, mask=live[None, :], other=0.0)
    else:
        return tl.load(place, mask=live[None, :] & (at < columns)[:, None], other=0.0)


@triton.jit
def products(
    x,
    start,  # [inputs]: where each begins
    live,  # [inputs]
    columns,
    codes,
    extras,
    scales,
    chunks,
    tile,  # [rows]: the row tile of each
    lane,  # [rows]: its row in it
    begin,  # steps of UNROLL chunks
    end,
    UNROLL: tl.constexpr,
    STAGES: tl.constexpr,
    EVEN: tl.constexpr,
    BITS: tl.constexpr,
    HIGH: tl.constexpr,
    FINE: tl.constexpr,
    MIN: tl.constexpr,
    TABLE: tl.constexpr,
    ASM: tl.constexpr,
):
    """The sums [rows, inputs] over the chunks of some steps."""
    word = lane[:, None] * SLICE + tl.arange(0, SLICE)[None, :]
    CODE_TILES: tl.constexpr = BITS // 4
    PAIRS: tl.constexpr = (2 if FINE else 1) * (2 if MIN else 1)
    code_words = codes + (tile * chunks * (CODE_TILES * TILE))[:, None] + word
    extra_words = code_words
    if HIGH > 0:
        SHARE: tl.constexpr = 4 // HIGH
        extra_words = extras + (tile * ((chunks + SHARE - 1) // SHARE) * TILE)[:, None] + word
    group_scales = scales + tile * chunks * (PAIRS * ROWS) + lane
    sums = tl.zeros((tile.shape[0], start.shape[0]), tl.float32)
    for step in tl.range(begin, end, num_stages=STAGES):
        for part in tl.static_range(UNROLL):
            chunk = step * UNROLL + part
            if HIGH == 2:
                if part % 2 == 0:
                    e0, e1 = two_extras(extra_words + chunk // 2 * TILE, ASM)
                    extra = e0
                else:
                    extra = e1
            elif HIGH == 1:
                if part % 4 == 0:
                    e0, e1, e2, e3 = four_extras(extra_words + chunk // 4 * TILE, ASM)
                    extra = e0
                elif part % 4 == 1:
                    extra = e1
                elif part % 4 == 2:
                    extra = e2
                else:
                    extra = e3
            else:
                extra = 0
            w0, w1, w2, w3 = chunk_slices(
                code_words, extra, group_scales, chunk, BITS, HIGH, FINE, MIN, TABLE, ASM
            )
            column = chunk * CHUNK
            sums = tl.dot(w0, _inputs(x, start, live, column, columns, EVEN), sums)
            sums = tl.dot(w1, _inputs(x, start, live, column + 16, columns, EVEN), sums)
            sums = tl.dot(w2, _inputs(x, start, live, column + 32, columns, EVEN), sums)
            sums = tl.dot(w3, _inputs(x, start, live, column + 48, columns, EVEN), sums)
    return sums
