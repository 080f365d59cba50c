"""Products of some rows of a quantized matrix with some inputs: what linear maps are made of.

They are added up chunk by chunk on the matrix units, in float32. What an input gets depends on
neither the other inputs nor how many there are: chunks are added in the same order, 16 columns at a
time, however many rows and inputs a program takes. `products` gives all columns to every warp, and
`split_products` shares them out among the warps, which pays where inputs are few.
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
    """The sums [rows, inputs] over all chunks, UNROLL of them in a step."""
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
    for step in tl.range(0, chunks // UNROLL, num_stages=STAGES):
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
                code_words + chunk * (CODE_TILES * TILE),
                extra,
                group_scales + chunk * (PAIRS * ROWS),
                BITS,
                HIGH,
                FINE,
                MIN,
                TABLE,
                ASM,
            )
            column = chunk * CHUNK
            sums = tl.dot(w0, _inputs(x, start, live, column, columns, EVEN), sums)
            sums = tl.dot(w1, _inputs(x, start, live, column + 16, columns, EVEN), sums)
            sums = tl.dot(w2, _inputs(x, start, live, column + 32, columns, EVEN), sums)
            sums = tl.dot(w3, _inputs(x, start, live, column + 48, columns, EVEN), sums)
    return sums


@triton.jit
def _split_inputs(x, start, live, column, columns, EVEN: tl.constexpr):
    """Slices of the inputs, [splits, 16, inputs]."""
    at = column[:, None] + tl.arange(0, SLICE)[None, :]
    place = x + start[None, None, :] + at[:, :, None]
    if EVEN:
        return tl.load(place, mask=live[None, None, :], other=0.0)
    else:
        return tl.load(place, mask=live[None, None, :] & (at < columns)[:, :, None], other=0.0)


@triton.jit
def split_products(
    x,
    start,
    live,
    columns,
    codes,
    extras,
    scales,
    chunks,
    tile,
    lane,
    SPLITS: tl.constexpr,
    RUN: tl.constexpr,
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
    """The sums [rows, inputs] over all chunks, in runs of RUN to each of SPLITS warps.

    There may be too few for all in the end: inputs behind the last column are 0 (not EVEN). UNROLL
    of a run are on their way together.
    """
    word = lane[:, None] * SLICE + tl.arange(0, SLICE)[None, :]
    CODE_TILES: tl.constexpr = BITS // 4
    PAIRS: tl.constexpr = (2 if FINE else 1) * (2 if MIN else 1)
    code_words = (codes + (tile * chunks * (CODE_TILES * TILE))[:, None] + word)[None, :, :]
    extra_words = code_words
    SHARE: tl.constexpr = 4 // HIGH if HIGH > 0 else 1
    if HIGH > 0:
        begin = (tile * ((chunks + SHARE - 1) // SHARE) * TILE)[:, None]
        extra_words = (extras + begin + word)[None, :, :]
    group_scales = (scales + tile * chunks * (PAIRS * ROWS) + lane)[None, :]
    sums = tl.zeros((SPLITS, tile.shape[0], start.shape[0]), tl.float32)
    runs = chunks // RUN
    STEPS: tl.constexpr = RUN // UNROLL
    for step in tl.range(0, tl.cdiv(runs, SPLITS) * STEPS, num_stages=STAGES):
        run = step // STEPS * SPLITS + tl.arange(0, SPLITS)
        inner = step % STEPS * UNROLL
        first = tl.minimum(run, runs - 1) * RUN + inner
        for part in tl.static_range(UNROLL):
            if HIGH > 0 and UNROLL % SHARE > 0:
                move = (first + part) % SHARE * (4 * HIGH)
                words = tl.load(extra_words + ((first + part) // SHARE * TILE)[:, None, None])
                extra = words >> move.to(tl.uint16)[:, None, None]
            elif HIGH == 2:
                if part % 2 == 0:
                    at = (first + part) // 2 * TILE
                    e0, e1 = two_extras(extra_words + at[:, None, None], ASM)
                    extra = e0
                else:
                    extra = e1
            elif HIGH == 1:
                if part % 4 == 0:
                    at = (first + part) // 4 * TILE
                    e0, e1, e2, e3 = four_extras(extra_words + at[:, None, None], ASM)
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
                code_words + ((first + part) * (CODE_TILES * TILE))[:, None, None],
                extra,
                group_scales + ((first + part) * (PAIRS * ROWS))[:, None],
                BITS,
                HIGH,
                FINE,
                MIN,
                TABLE,
                ASM,
            )
            column = (run * RUN + inner + part) * CHUNK
            sums = tl.dot(w0, _split_inputs(x, start, live, column, columns, EVEN), sums)
            sums = tl.dot(w1, _split_inputs(x, start, live, column + 16, columns, EVEN), sums)
            sums = tl.dot(w2, _split_inputs(x, start, live, column + 32, columns, EVEN), sums)
            sums = tl.dot(w3, _split_inputs(x, start, live, column + 48, columns, EVEN), sums)
    return tl.sum(sums, axis=0)
