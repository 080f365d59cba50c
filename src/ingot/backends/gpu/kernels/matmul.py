"""Half floats times half floats on the matrix units, for prompts.

out = epilogue(weights @ x): weights [rows, columns] as `dequantize_kernel` leaves them, x [tokens,
columns]. Products are added in the same order as in `linear_kernel`, column by column.
"""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.epilogue import additions, finish, place_of


@triton.jit
def matmul_kernel(
    x,
    x_stride,
    columns,
    weights,
    stride,
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
    DEPTH: tl.constexpr,
    STAGES: tl.constexpr,
    EVEN: tl.constexpr,
    PARTS: tl.constexpr,
    BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr,
    ACTIVATION: tl.constexpr,
    GATED: tl.constexpr,
    HALF: tl.constexpr,
):
    """A program takes BLOCK rows and COLS tokens; neighbours share rows, so these stay in cache."""
    token_blocks = tl.cdiv(tokens, COLS)
    block = tl.program_id(0) // token_blocks
    row = block * BLOCK + tl.arange(0, BLOCK)
    token = tl.program_id(0) % token_blocks * COLS + tl.arange(0, COLS)
    live = token < tokens
    depth = tl.arange(0, DEPTH)
    x_at = x + token.to(tl.int64)[None, :] * x_stride + depth[:, None]
    inside = tl.minimum(row, rows - 1)
    w_at = weights + inside.to(tl.int64)[:, None] * stride + depth[None, :]
    sums = tl.zeros((BLOCK, COLS), tl.float32)
    for column in tl.range(0, stride, DEPTH, num_stages=STAGES):
        w = tl.load(w_at + column)
        if EVEN:
            inputs = tl.load(x_at + column, mask=live[None, :], other=0.0)
        else:
            mask = live[None, :] & (column + depth < columns)[:, None]
            inputs = tl.load(x_at + column, mask=mask, other=0.0)
        sums = tl.dot(w, inputs, sums)
    part_first, width, base = place_of(
        block * BLOCK, first1, first2, width0, width1, width2, base0, base1, base2, PARTS
    )
    added = additions(row, token, tokens, part_first, width, bias, residual, BIAS, RESIDUAL)
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
