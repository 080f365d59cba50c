"""A linear map straight from quantized weights: each block of them is unpacked in registers.

Inputs are half floats [tokens, columns]; a program takes BLOCK rows of the matrix, a share of its
columns and COLS tokens from `first` on, and adds up products chunk by chunk on the matrix units, in
float32. Where the columns are shared out, the program that comes last adds the shares, in their
order. What a token gets depends on neither the other tokens nor how many there are: chunks are
added in the same order, 16 columns at a time, whatever BLOCK and COLS are.
"""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.epilogue import additions, finish, place_of
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
def _inputs(x, token, live, column, columns, EVEN: tl.constexpr):
    """A slice of the inputs, [16, COLS]."""
    at = column + tl.arange(0, SLICE)
    place = x + token[None, :] + at[:, None]
    if EVEN:
        return tl.load(place, mask=live[None, :], other=0.0)
    else:
        return tl.load(place, mask=live[None, :] & (at < columns)[:, None], other=0.0)


@triton.jit
def linear_kernel(
    x,
    x_stride,
    columns,
    codes,
    extras,
    scales,
    chunks,
    first,
    tokens,
    rows,
    work,
    counters,
    factor,
    bias,
    residual,
    out,
    half_scale,
    first1,
    first2,
    width0,
    width1,
    width2,
    base0,
    base1,
    base2,
    BLOCK: tl.constexpr,
    COLS: tl.constexpr,
    UNROLL: tl.constexpr,
    STAGES: tl.constexpr,
    SPLITS: tl.constexpr,
    EVEN: tl.constexpr,
    BITS: tl.constexpr,
    HIGH: tl.constexpr,
    FINE: tl.constexpr,
    MIN: tl.constexpr,
    TABLE: tl.constexpr,
    ASM: tl.constexpr,
    PARTS: tl.constexpr,
    BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr,
    ACTIVATION: tl.constexpr,
    GATED: tl.constexpr,
    HALF: tl.constexpr,
):
    """out = epilogue(weights @ x)."""
    block = tl.program_id(0)
    split = tl.program_id(1)
    row = block * BLOCK + tl.arange(0, BLOCK)
    column_of = tl.arange(0, COLS)
    token = first + tl.program_id(2) * COLS + column_of
    live = token < tokens
    start = token.to(tl.int64) * x_stride

    tile = tl.minimum(row, rows - 1).to(tl.int64) // ROWS  # rows behind the last are not stored
    lane = row % ROWS
    word = lane[:, None] * SLICE + tl.arange(0, SLICE)[None, :]
    CODE_TILES: tl.constexpr = BITS // 4
    PAIRS: tl.constexpr = (2 if FINE else 1) * (2 if MIN else 1)
    code_words = codes + (tile * chunks * (CODE_TILES * TILE))[:, None] + word
    extra_words = code_words
    if HIGH > 0:
        SHARE: tl.constexpr = 4 // HIGH
        extra_words = extras + (tile * ((chunks + SHARE - 1) // SHARE) * TILE)[:, None] + word
    group_scales = scales + tile * chunks * (PAIRS * ROWS) + lane

    steps = chunks // UNROLL
    share = (steps + SPLITS - 1) // SPLITS
    begin = split * share
    end = tl.minimum(begin + share, steps)
    part_first, width, base = place_of(
        block * BLOCK, first1, first2, width0, width1, width2, base0, base1, base2, PARTS
    )
    added = additions(row, token, tokens, part_first, width, bias, residual, BIAS, RESIDUAL)
    sums = tl.zeros((BLOCK, COLS), tl.float32)
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

    if SPLITS == 1:
        finish(
            sums,
            added,
            row,
            token,
            tokens,
            part_first,
            width,
            base,
            factor,
            out,
            half_scale,
            BIAS or RESIDUAL,
            ACTIVATION,
            GATED,
            HALF,
        )
    else:
        share_at = work + column_of[None, :] * (rows * SPLITS) + row[:, None]
        ours = (row < rows)[:, None] & live[None, :]
        tl.store(share_at + split * rows, sums, mask=ours)
        tl.debug_barrier()
        counter = counters + block
        ticket = tl.atomic_add(counter, 1, sem="acq_rel")
        if ticket == SPLITS - 1:
            total = tl.zeros((BLOCK, COLS), tl.float32)
            for number in tl.static_range(SPLITS):
                total += tl.load(
                    share_at + number * rows, mask=ours, other=0.0, cache_modifier=".cg"
                )
            tl.store(counter, 0)
            finish(
                total,
                added,
                row,
                token,
                tokens,
                part_first,
                width,
                base,
                factor,
                out,
                half_scale,
                BIAS or RESIDUAL,
                ACTIVATION,
                GATED,
                HALF,
            )
