"""A linear map straight from quantized weights: each block of them is unpacked in registers.

Inputs are half floats [tokens, columns]; a program takes BLOCK rows of the matrix and COLS
tokens. With SPLITS its warps share the columns out, otherwise the rows.
"""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.epilogue import additions, finish, place_of
from ingot.backends.gpu.kernels.products import products, split_products
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
    tokens,
    rows,
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
    SPLITS: tl.constexpr,  # 0: of rows only
    RUN: tl.constexpr,
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
    row = block * BLOCK + tl.arange(0, BLOCK)
    token = tl.program_id(1) * COLS + tl.arange(0, COLS)
    live = token < tokens
    start = token.to(tl.int64) * x_stride
    tile = tl.minimum(row, rows - 1).to(tl.int64) // ROWS  # rows behind the last are not stored
    part_first, width, base = place_of(
        block * BLOCK, first1, first2, width0, width1, width2, base0, base1, base2, PARTS
    )
    added = additions(row, token, tokens, part_first, width, bias, residual, BIAS, RESIDUAL)
    if SPLITS:
        sums = split_products(
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
            SPLITS,
            RUN,
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
    else:
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
