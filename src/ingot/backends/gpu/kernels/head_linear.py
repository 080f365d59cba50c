"""A matrix for every head: what latent attention makes of queries and of mixed latents.

out[head] = what the head has beyond the columns of its matrix, then matrix[head] @ x[head]. Inputs
are halves [tokens, heads * size]; the matrices lie below each other, each filled up to whole tiles.
Products are added in one order whatever the tile, so a token's result does not depend on others.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ingot.backends.gpu.kernels.epilogue import store_rounded
from ingot.backends.gpu.kernels.order import start_next, wait_for_last
from ingot.backends.gpu.kernels.products import products
from ingot.backends.gpu.kernels.weights import ROWS


class HeadMap(NamedTuple):
    """What becomes of the products of a head, and where they go."""

    factor: float
    source: torch.Tensor | None  # floats [tokens, heads * size], if heads have more than columns
    size: int  # elements of a head that come in
    columns: int  # and those that its matrix takes
    kept: int  # the others
    results: int  # rows of a head's matrix that count
    out: torch.Tensor  # [tokens, heads * (kept + results)], halves or floats
    half_scale: float  # of halves


@triton.jit(do_not_specialize=["tokens"])
def head_linear_kernel(
    inputs,
    tokens,
    weights,  # with the rows of one head
    heads,
    KEPT: tl.constexpr,  # the next power of two
    TILE: tl.constexpr,
    FORM: tl.constexpr,
    ASM: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """A program takes some rows of one head's matrix, and some tokens."""
    wait_for_last(AHEAD)
    BLOCK: tl.constexpr = TILE.rows
    COLS: tl.constexpr = TILE.columns
    rows = weights.rows
    head = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    token = (tl.program_id(2) * COLS + tl.arange(0, COLS)).to(tl.int64)
    live = token < tokens
    inside = tl.minimum(row, rows - 1)  # rows after the last are not stored
    sums = products(
        inputs,
        token * inputs.stride + head * heads.size,
        live,
        weights,
        (head * rows + inside) // ROWS,
        row % ROWS,
        0,
        weights.chunks // TILE.unroll,
        TILE,
        FORM,
        ASM,
    )
    start_next(AHEAD)
    width = heads.kept + heads.results
    place = heads.out + (token * tl.num_programs(1) + head)[:, None] * width
    mask = live[:, None] & (row < heads.results)[None, :]
    value = tl.trans(sums * heads.factor)
    store_rounded(place + heads.kept + row[None, :], value, heads.half_scale, mask)
    if heads.source is not None:  # noqa: SIM102 (the compiler leaves it out)
        if tl.program_id(0) == 0:
            at = tl.arange(0, KEPT)[None, :]
            kept = live[:, None] & (at < heads.kept)
            source = heads.source + (token * tl.num_programs(1) + head)[:, None] * heads.size
            unchanged = tl.load(source + heads.columns + at, mask=kept, other=0.0)
            store_rounded(place + at, unchanged, heads.half_scale, kept)
