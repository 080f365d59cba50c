"""What adapters add to linear layers, for the rows of the tokens that use one.

    out[row] += scale * (x[row] @ down.T) @ up.T

A program takes a tile of rows and goes through the adapters that are in it, one after the other:
all rows of an adapter meet its matrices together. A row's result does not depend on the others.
Tables hold, for every matrix that can be adapted and every slot, where the two small matrices are.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ingot.backends.gpu.kernels.activation import activate, activate_pair
from ingot.backends.gpu.kernels.epilogue import store_rounded
from ingot.backends.gpu.kernels.order import start_next, wait_for_last

ROWS = tl.constexpr(16)  # of a tile: what a product of halves takes at least
RANKS = tl.constexpr(16)


class Uses(NamedTuple):
    """The adapters of a step."""

    slots: torch.Tensor  # of each token; below 0: none
    scales: torch.Tensor
    wanted: torch.Tensor | None  # the token of each row, if there are rows for wanted ones only


class Tables(NamedTuple):
    """By part and slot; the pointers of a rank of 0 lead nowhere."""

    down: torch.Tensor  # int64: halves [rank, columns]
    up: torch.Tensor  # int64: halves [outputs, rank]
    ranks: torch.Tensor
    scales: torch.Tensor
    slots: int


class Low(NamedTuple):
    """Rows between the two matrices: floats [parts, rows, stride]."""

    floats: torch.Tensor
    rows: int
    stride: int


class Target(NamedTuple):
    """Where the values of the parts are, row after row."""

    out: torch.Tensor  # floats
    factors: tuple[float, ...]
    widths: tuple[int, ...]
    bases: tuple[int, ...]
    stride: tuple[int, ...]  # of a row
    step: int  # from an element to the next


@triton.jit
def _tile(uses, tokens, LIVE: tl.constexpr):
    """The rows of a tile, which of them are there, their slots and scales."""
    lane = tl.arange(0, ROWS)
    row = tl.program_id(0) * LIVE + lane
    live = (lane < LIVE) & (row < tokens)
    token = row
    if uses.wanted is not None:
        token = tl.load(uses.wanted + row, mask=live, other=0)
    slot = tl.load(uses.slots + token, mask=live, other=-1)
    scale = tl.load(uses.scales + token, mask=live, other=0.0)
    return row, slot, scale


@triton.jit(do_not_specialize=["tokens"])
def adapter_down_kernel(
    x,
    stride,
    columns,
    tokens,
    uses,
    tables,
    low,
    LIVE: tl.constexpr,
    DEPTH: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """low = x @ down.T; a program computes 16 ranks of a part."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    rank = tl.program_id(1) * RANKS + tl.arange(0, RANKS)
    part = tl.program_id(2)
    row, slot, _ = _tile(uses, tokens, LIVE)
    depth = tl.arange(0, DEPTH)
    current = tl.max(slot)
    while current >= 0:
        ranks = tl.load(tables.ranks + part * tables.slots + current)
        if tl.program_id(1) * RANKS < ranks:
            down = tl.load(tables.down + part * tables.slots + current)
            down = down.to(tl.pointer_type(tl.float16))
            mine = slot == current
            sums = tl.zeros((ROWS, RANKS), tl.float32)
            for column in range(0, columns, DEPTH):
                inside = column + depth < columns
                place = x + row.to(tl.int64)[:, None] * stride + (column + depth)[None, :]
                inputs = tl.load(place, mask=mine[:, None] & inside[None, :], other=0.0)
                place = down + rank.to(tl.int64)[None, :] * columns + (column + depth)[:, None]
                weights = tl.load(place, mask=(rank < ranks)[None, :] & inside[:, None], other=0.0)
                sums = tl.dot(inputs, weights, sums)
            place = low.floats + (part * low.rows + row)[:, None] * low.stride + rank[None, :]
            tl.store(place, sums, mask=mine[:, None] & (rank < ranks)[None, :])
        current = tl.max(tl.where(slot < current, slot, -1))


@triton.jit(do_not_specialize=["tokens"])
def adapter_token_kernel(
    ids,
    sampled,
    tokens,
    uses,
    tables,
    low,
    LIVE: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """low = the row of each token's id, of an embedding's `down` [ids, rank]."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    rank = tl.program_id(1) * RANKS + tl.arange(0, RANKS)
    row, slot, _ = _tile(uses, tokens, LIVE)
    id = tl.load(ids + row, mask=slot >= 0, other=0)
    ahead = tl.load(sampled + tl.where(id < 0, -1 - id, 0), mask=id < 0, other=0)
    id = tl.where(id < 0, tl.maximum(ahead, 0), id)
    current = tl.max(slot)
    while current >= 0:
        ranks = tl.load(tables.ranks + current)
        down = tl.load(tables.down + current).to(tl.pointer_type(tl.float16))
        mask = (slot == current)[:, None] & (rank < ranks)[None, :]
        place = down + id.to(tl.int64)[:, None] * ranks + rank[None, :]
        values = tl.load(place, mask=mask, other=0.0).to(tl.float32)
        tl.store(low.floats + row[:, None] * low.stride + rank[None, :], values, mask=mask)
        current = tl.max(tl.where(slot < current, slot, -1))


@triton.jit
def _of_part(numbers, part):
    """A number of a part."""
    COUNT: tl.constexpr = len(numbers)
    found = numbers[0]
    for number in tl.static_range(1, COUNT):
        found = tl.where(part == number, numbers[number], found)
    return found


@triton.jit(do_not_specialize=["tokens"])
def adapter_up_kernel(
    tokens,
    uses,
    tables,
    low,
    target,
    LIVE: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """out += factor * scale * low @ up.T; a program computes a block of a part's outputs."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    part = tl.program_id(2)
    width = _of_part(target.widths, part)
    output = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = output < width
    row, slot, scale = _tile(uses, tokens, LIVE)
    place = (
        target.out
        + _of_part(target.bases, part)
        + row.to(tl.int64)[:, None] * _of_part(target.stride, part)
        + output[None, :] * target.step
    )
    current = tl.max(slot)
    while current >= 0:
        ranks = tl.load(tables.ranks + part * tables.slots + current)
        if ranks > 0:
            up = tl.load(tables.up + part * tables.slots + current)
            up = up.to(tl.pointer_type(tl.float16))
            factor = _of_part(target.factors, part) * tl.load(
                tables.scales + part * tables.slots + current
            )
            mine = slot == current
            sums = tl.zeros((ROWS, BLOCK), tl.float32)
            for start in range(0, ranks, RANKS):
                rank = start + tl.arange(0, RANKS)
                there = rank < ranks
                at = low.floats + (part * low.rows + row)[:, None] * low.stride + rank[None, :]
                inputs = tl.load(at, mask=mine[:, None] & there[None, :], other=0.0)
                at = up + output.to(tl.int64)[None, :] * ranks + rank[:, None]
                weights = tl.load(at, mask=inside[None, :] & there[:, None], other=0.0)
                sums = tl.dot(inputs, weights.to(tl.float32), sums, input_precision="ieee")
            mask = mine[:, None] & inside[None, :]
            value = tl.load(place, mask=mask, other=0.0) + sums * (scale * factor)[:, None]
            tl.store(place, value, mask=mask)
        current = tl.max(tl.where(slot < current, slot, -1))


@triton.jit
def activate_rows_kernel(
    x,  # floats [rows, width], or [rows, 2 * width]: gate and up in turn
    out,
    width,
    half_scale,
    ACTIVATION: tl.constexpr,
    GATED: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """out = activation(gate) * up, or activation(x)."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    row = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    if GATED:
        gate = tl.load(x + row * 2 * width + 2 * at, mask=inside, other=0.0)
        up = tl.load(x + row * 2 * width + 2 * at + 1, mask=inside, other=0.0)
        value = activate_pair(gate, up, ACTIVATION)
    else:
        value = activate(tl.load(x + row * width + at, mask=inside, other=0.0), ACTIVATION)
    store_rounded(out + row * width + at, value, half_scale, inside)
