"""Linear maps of experts, straight from quantized weights: an expert's rows for its tokens.

The matrices of all experts lie below each other, `rows` each. A program takes BLOCK rows of one
expert and a tile of its pairs (see `kernels.route`), at most COLS of them; of a single token
(SINGLE) every pair is a tile. Only experts that are chosen are read.
"""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.epilogue import finish
from ingot.backends.gpu.kernels.order import start_next, wait_for_last
from ingot.backends.gpu.kernels.products import products
from ingot.backends.gpu.kernels.weights import ROWS


@triton.jit
def expert_kernel(
    x,
    x_stride,
    pairs_of_input,  # that read the same input: 1, or as many as a token uses
    columns,
    codes,
    extras,
    scales,
    chunks,
    rows,
    choice,
    sorted_pairs,
    tiles,
    tile_count,
    most,
    pairs,
    factor,
    bias,
    out,
    width,
    half_scale,
    BLOCK: tl.constexpr,
    COLS: tl.constexpr,
    UNROLL: tl.constexpr,
    STAGES: tl.constexpr,
    EVEN: tl.constexpr,
    SINGLE: tl.constexpr,
    BITS: tl.constexpr,
    HIGH: tl.constexpr,
    FINE: tl.constexpr,
    MIN: tl.constexpr,
    TABLE: tl.constexpr,
    ASM: tl.constexpr,
    BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    GATED: tl.constexpr,
    HALF: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """out[pair] = epilogue(weights of its expert @ x[pair // pairs_of_input])."""
    wait_for_last(AHEAD)
    number = tl.program_id(1)
    column_of = tl.arange(0, COLS)
    if SINGLE:
        expert = tl.load(choice + number).to(tl.int32)
        live = column_of == 0
        pair = number + column_of
    else:
        if number >= tl.load(tile_count):
            return
        expert = tl.load(tiles + number)
        live = column_of < tl.load(tiles + 2 * most + number)
        first = tl.load(tiles + most + number)
        pair = tl.load(sorted_pairs + first + column_of, mask=live, other=0)
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = tl.minimum(row, rows - 1)  # rows behind the last are not stored
    tile = (expert.to(tl.int64) * rows + inside) // ROWS
    sums = products(
        x,
        (pair // pairs_of_input).to(tl.int64) * x_stride,
        live,
        columns,
        codes,
        extras,
        scales,
        chunks,
        tile,
        row % ROWS,
        0,
        chunks // UNROLL,
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
    start_next(AHEAD)
    added = tl.zeros((COLS, BLOCK), tl.float32)
    if BIAS:
        added += tl.load(bias + expert * rows + inside)[None, :]
    finish(
        sums,
        added,
        row,
        tl.where(live, pair, pairs).to(tl.int64),
        pairs,
        0,
        width,
        0,
        factor,
        out,
        half_scale,
        BIAS,
        ACTIVATION,
        GATED,
        HALF,
    )
