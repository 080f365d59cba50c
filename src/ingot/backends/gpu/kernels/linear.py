"""A linear layer of up to 64 tokens: each block of weights is unpacked in registers.

Inputs are half floats [tokens, columns]; a program takes some rows of the matrix, a share of its
columns and some tokens. If the columns are shared out, the program that comes last
adds the shares, in their order, group by group. Two matrices of different formats that read the
same input run in one kernel, so that neither waits for the other. `linear_wide.py` is for more
tokens.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ingot.backends.gpu.kernels.epilogue import Epilogue, additions, finish, part_of
from ingot.backends.gpu.kernels.order import start_next, wait_for_last
from ingot.backends.gpu.kernels.products import products
from ingot.backends.gpu.kernels.weights import ROWS, Weights


class Split(NamedTuple):
    """How the columns of a matrix are shared out, and where programs leave their shares."""

    share: int  # chunks of a program
    sums: torch.Tensor  # float32 [tokens, splits, rows]
    counters: torch.Tensor  # int32, all 0 between launches


class Matrix(NamedTuple):
    """One of two matrices that read the same input."""

    weights: Weights
    split: Split
    epilogue: Epilogue


@triton.jit(do_not_specialize=["tokens"])
def linear_kernel(
    inputs,
    tokens,
    weights,
    split,
    epilogue,
    TILE: tl.constexpr,
    FORM: tl.constexpr,
    ACTIVATION: tl.constexpr,
    GATED: tl.constexpr,
    ASM: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """out = epilogue(weights @ x)."""
    token = tl.program_id(2) * TILE.columns + tl.arange(0, TILE.columns)
    wait_for_last(AHEAD)
    _share(
        tl.program_id(0),
        tl.program_id(1),
        token,
        tokens,
        inputs,
        weights,
        split,
        epilogue,
        TILE,
        FORM,
        ACTIVATION,
        GATED,
        ASM,
        AHEAD,
    )


@triton.jit(do_not_specialize=["tokens"])
def linear_pair_kernel(
    inputs,
    tokens,
    programs,
    a,
    b,
    TILE_A: tl.constexpr,
    TILE_B: tl.constexpr,
    FORM_A: tl.constexpr,
    FORM_B: tl.constexpr,
    ASM: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Two matrices, a and b: the first `programs` are of a."""
    token = tl.program_id(1) * TILE_A.columns + tl.arange(0, TILE_A.columns)
    program = tl.program_id(0)
    wait_for_last(AHEAD)
    if program < programs:
        _share(
            program // TILE_A.splits,
            program % TILE_A.splits,
            token,
            tokens,
            inputs,
            a.weights,
            a.split,
            a.epilogue,
            TILE_A,
            FORM_A,
            0,
            False,
            ASM,
            AHEAD,
        )
    else:
        number = program - programs
        _share(
            number // TILE_B.splits,
            number % TILE_B.splits,
            token,
            tokens,
            inputs,
            b.weights,
            b.split,
            b.epilogue,
            TILE_B,
            FORM_B,
            0,
            False,
            ASM,
            AHEAD,
        )


@triton.jit
def _share(
    block,
    number,
    token,  # [columns of the tile]
    tokens,
    inputs,
    weights,
    split,
    epilogue,
    TILE: tl.constexpr,
    FORM: tl.constexpr,
    ACTIVATION: tl.constexpr,
    GATED: tl.constexpr,
    ASM: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """A block of rows, and one of the shares of its columns."""
    UNROLL: tl.constexpr = TILE.unroll
    SPLITS: tl.constexpr = TILE.splits
    GROUP: tl.constexpr = TILE.group
    BLOCK: tl.constexpr = TILE.rows
    COLS: tl.constexpr = TILE.columns
    rows = weights.rows
    row = block * BLOCK + tl.arange(0, BLOCK)
    live = token < tokens
    tile = tl.minimum(row, rows - 1).to(tl.int64) // ROWS  # rows after the last are not stored
    begin = number * split.share // UNROLL
    end = tl.minimum(begin + split.share // UNROLL, weights.chunks // UNROLL)
    part = part_of(block * BLOCK, epilogue)
    added = additions(row, token, tokens, part, epilogue)
    sums = products(
        inputs,
        token.to(tl.int64) * inputs.stride,
        live,
        weights,
        tile,
        row % ROWS,
        begin,
        end,
        TILE,
        FORM,
        ASM,
    )
    start_next(AHEAD)
    if SPLITS == 1:
        finish(sums, added, block * BLOCK, token, tokens, part, epilogue, ACTIVATION, GATED)
    else:
        column = tl.arange(0, COLS)
        share_at = split.sums + column[None, :] * (rows * SPLITS) + row[:, None]
        ours = (row < rows)[:, None] & live[None, :]
        tl.store(share_at + number * rows, sums, mask=ours)
        tl.debug_barrier()
        counter = split.counters + block
        ticket = tl.atomic_add(counter, 1, sem="acq_rel")
        if ticket == SPLITS - 1:
            total = tl.zeros((BLOCK, COLS), tl.float32)
            for first in tl.static_range(0, SPLITS, GROUP):
                group = tl.zeros((BLOCK, COLS), tl.float32)
                for other in tl.static_range(first, min(first + GROUP, SPLITS)):
                    group += tl.load(
                        share_at + other * rows, mask=ours, other=0.0, cache_modifier=".cg"
                    )
                total += group
            tl.store(counter, 0)
            finish(total, added, block * BLOCK, token, tokens, part, epilogue, ACTIVATION, GATED)
