"""A linear map straight from quantized weights: each block of them is unpacked in registers.

Inputs are half floats [tokens, columns]; a program takes BLOCK rows of the matrix, a share of its
columns and COLS tokens from `first` on. Where the columns are shared out, the program that comes
last adds the shares, in their order.
"""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.epilogue import additions, finish, place_of
from ingot.backends.gpu.kernels.order import start_next, wait_for_last
from ingot.backends.gpu.kernels.products import fetch_weights, products
from ingot.backends.gpu.kernels.weights import ROWS


@triton.jit
def linear_kernel(
    x,
    x_stride,
    columns,
    codes,
    extras,
    scales,
    chunks,
    share,  # of the chunks, for one program
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
    FETCHED: tl.constexpr,
    LATE: tl.constexpr,
    AHEAD: tl.constexpr,
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
    begin = split * share // UNROLL
    end = tl.minimum(begin + share // UNROLL, chunks // UNROLL)
    fetch_weights(
        codes,
        extras,
        scales,
        chunks,
        block * (BLOCK // ROWS),
        begin * UNROLL,
        end * UNROLL,
        rows,
        BLOCK // ROWS,
        BITS,
        HIGH,
        FINE,
        MIN,
        FETCHED,
        AHEAD,
    )
    wait_for_last(AHEAD)
    if not LATE:
        start_next(AHEAD)
    part_first, width, base = place_of(
        block * BLOCK, first1, first2, width0, width1, width2, base0, base1, base2, PARTS
    )
    added = additions(row, token, tokens, part_first, width, bias, residual, BIAS, RESIDUAL)
    sums = products(
        x,
        start,
        live,
        columns,
        codes,
        extras,
        scales,
        chunks,
        tile,
        row % ROWS,
        begin,
        end,
        UNROLL,
        STAGES,
        EVEN,
        BITS,
        HIGH,
        FINE,
        MIN,
        TABLE,
        ASM,
    )

    if LATE:
        start_next(AHEAD)
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
