"""The gated delta rule: a matrix for each head that every token corrects, and reads.

When decoding, tokens go one after the other (`delta_walk_kernel`). A prompt runs in chunks of 32
positions, whose tokens are solved together. With the matrix S before a chunk, and G the sum of the
logarithms of what is left of it up to a token, what token i adds is the row d_i of

    (I + A) d = rate * v - rate * exp(G) * (k @ S),  A[i, j] = rate_i exp(G_i - G_j) k_i.k_j, j < i

`delta_prepare_kernel` solves this for all chunks at once: d = u - w @ S. `delta_chunk_kernel` then
goes from chunk to chunk with products of small matrices. Chunks have fixed bounds, and a later
token changes nothing before it, so bits do not depend on where a prompt ends.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ingot.backends.gpu.kernels.activation import SIGMOID, SOFTPLUS, activate
from ingot.backends.gpu.kernels.kv_cache import BLOCK_TOKENS
from ingot.backends.gpu.kernels.order import start_next, wait_for_last
from ingot.backends.gpu.kernels.states import (
    LANES,
    PROMPT,
    load_state,
    store_state,
    tokens_of,
)


class DeltaRule(NamedTuple):
    """What a delta rule reads and writes."""

    query: torch.Tensor  # [tokens, key heads * key size]
    key: torch.Tensor
    value: torch.Tensor  # [tokens, heads * value size]
    step: torch.Tensor  # [tokens, heads]
    rate: torch.Tensor
    decay: torch.Tensor  # [heads]
    bias: torch.Tensor
    out: torch.Tensor
    epsilon: float
    scale: float  # of queries


class DeltaWork(NamedTuple):
    """What is prepared for the chunks of a step: floats [tokens, heads, ...]."""

    known: torch.Tensor  # w: [..., key size]
    shares: torch.Tensor  # of the chunk's tokens in an output: [..., 32]


@dataclass(frozen=True, slots=True)
class DeltaForm:
    """What a kernel is compiled for."""

    heads: int
    key_heads: int
    tiled: bool  # head h has key head h % key_heads; else those of a key head are neighbours
    key_size: int
    key_room: int  # filled up
    value_size: int
    vectors: int  # of 16 columns of a head's matrix
    columns: int  # of a head's matrix that a program takes
    precision: str  # of products
    stages: int  # chunks whose loads are under way


@triton.jit
def _key_head(head, FORM: tl.constexpr):
    return head % FORM.key_heads if FORM.tiled else head // (FORM.heads // FORM.key_heads)


@triton.jit
def _place(head, column, FORM: tl.constexpr):
    """Where the elements [key size, columns] of a head's matrix lie, and which there are."""
    at = tl.arange(0, FORM.key_room)
    vector = column // LANES
    place = ((head * FORM.vectors + vector) * FORM.key_size)[None, :] + at[:, None]
    place = place * LANES + (column % LANES)[None, :]
    return place, (at < FORM.key_size)[:, None] & (vector < FORM.vectors)[None, :]


@triton.jit
def _logs(step, decay, bias):
    """The logarithm of what is left of a matrix."""
    return activate(step + bias, SOFTPLUS) * decay


@triton.jit(do_not_specialize=["numbers"])
def delta_walk_kernel(
    delta,
    state,
    batch,
    numbers,
    FORM: tl.constexpr,
    MODE: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Some columns of one head's matrix a program, token by token."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    BLOCKS: tl.constexpr = (FORM.vectors * LANES + FORM.columns - 1) // FORM.columns
    head = tl.program_id(0) // BLOCKS
    column = tl.program_id(0) % BLOCKS * FORM.columns + tl.arange(0, FORM.columns)
    sequence, first, count = tokens_of(tl.program_id(1), numbers, batch, MODE)
    if count > 0:
        at = tl.arange(0, FORM.key_room)
        real, wide = at < FORM.key_size, column < FORM.value_size
        place, kept = _place(head, column, FORM)
        begin = tl.load(batch.positions + first)
        matrix = load_state(state, sequence, begin, place, kept)
        decay, bias = tl.load(delta.decay + head), tl.load(delta.bias + head)
        for number in range(count):
            token = (first + number).to(tl.int64)
            row = (token * FORM.key_heads + _key_head(head, FORM)) * FORM.key_size + at
            key = tl.load(delta.key + row, mask=real, other=0.0)
            query = tl.load(delta.query + row, mask=real, other=0.0)
            key = key / tl.sqrt(tl.sum(key * key, axis=0) + delta.epsilon)
            query = query / tl.sqrt(tl.sum(query * query, axis=0) + delta.epsilon) * delta.scale
            row = (token * FORM.heads + head) * FORM.value_size + column
            value = tl.load(delta.value + row, mask=wide, other=0.0)
            left = tl.exp(_logs(tl.load(delta.step + token * FORM.heads + head), decay, bias))
            rate = activate(tl.load(delta.rate + token * FORM.heads + head), SIGMOID)
            matrix = matrix * left
            change = (value - tl.sum(key[:, None] * matrix, axis=0)) * rate
            matrix = matrix + key[:, None] * change[None, :]
            tl.store(delta.out + row, tl.sum(query[:, None] * matrix, axis=0), mask=wide)
            position = begin + number
            ends = (position % BLOCK_TOKENS == BLOCK_TOKENS - 1) | (number == count - 1)
            store_state(state, sequence, position, matrix, place, kept & ends)


@triton.jit
def _rows(x, token, inside, head, heads, at, SIZE: tl.constexpr):
    """Rows [tokens, size] of one head."""
    place = (token.to(tl.int64) * heads + head)[:, None] * SIZE + at[None, :]
    return tl.load(x + place, mask=inside[:, None] & (at < SIZE)[None, :], other=0.0)


@triton.jit
def _unit_rows(x, token, inside, head, delta, FORM: tl.constexpr):
    """Queries or keys of length 1."""
    at = tl.arange(0, FORM.key_room)
    rows = _rows(x, token, inside, _key_head(head, FORM), FORM.key_heads, at, FORM.key_size)
    return rows / tl.sqrt(tl.sum(rows * rows, axis=1) + delta.epsilon)[:, None]


@triton.jit
def _chunk_logs(delta, token, inside, head, FORM: tl.constexpr):
    """The logarithms of what is left after each token of a chunk; 0 where there is none."""
    place = token.to(tl.int64) * FORM.heads + head
    step = tl.load(delta.step + place, mask=inside, other=0.0)
    logs = _logs(step, tl.load(delta.decay + head), tl.load(delta.bias + head))
    return tl.where(inside, logs, 0.0)


@triton.jit(do_not_specialize=["tokens"])
def delta_prepare_kernel(delta, work, batch, tokens, FORM: tl.constexpr):
    """One head of the chunks that begin among 32 tokens; u goes where the outputs will."""
    row = tl.arange(0, BLOCK_TOKENS)
    token = tl.program_id(1) * BLOCK_TOKENS + row
    there = token < tokens
    position = tl.load(batch.positions + token, mask=there, other=-1)
    sequence = tl.load(batch.sequences + token, mask=there, other=-1)
    before = tl.load(batch.sequences + token - 1, mask=there & (token > 0), other=-1)
    starts = (position >= 0) & ((position % BLOCK_TOKENS == 0) | (before != sequence))
    last = tl.full((), -1, tl.int32)
    for _ in range(tl.sum(starts.to(tl.int32), axis=0)):
        last = tl.min(tl.where(starts & (row > last), row, BLOCK_TOKENS), axis=0)
        first = tl.program_id(1) * BLOCK_TOKENS + last
        _prepare_chunk(delta, work, batch, first, tokens, FORM)


@triton.jit
def _prepare_chunk(delta, work, batch, first, tokens, FORM: tl.constexpr):
    """The chunk whose first token in this step is given."""
    head = tl.program_id(0)
    row = tl.arange(0, BLOCK_TOKENS)
    begin = tl.load(batch.positions + first)
    sequence = tl.load(batch.sequences + first)
    offset = begin % BLOCK_TOKENS
    token = first - offset + row
    there = (row >= offset) & (token < tokens)
    same = tl.load(batch.sequences + token, mask=there, other=-1) == sequence
    position = tl.load(batch.positions + token, mask=there, other=-1)
    inside = there & same & (position == begin - offset + row)
    key = _unit_rows(delta.key, token, inside, head, delta, FORM)
    query = _unit_rows(delta.query, token, inside, head, delta, FORM)
    sums = tl.cumsum(_chunk_logs(delta, token, inside, head, FORM), axis=0)
    place = token.to(tl.int64) * FORM.heads + head
    rate = activate(tl.load(delta.rate + place, mask=inside, other=0.0), SIGMOID)
    rate = tl.where(inside, rate, 0.0)
    earlier = row[:, None] < row[None, :]  # [j, i]: j comes before i
    left = tl.exp(tl.where(earlier, sums[None, :] - sums[:, None], 0.0))
    alike = tl.dot(key, tl.trans(key), input_precision=FORM.precision)
    system = tl.where(earlier, alike * left * rate[None, :], 0.0)
    solved = tl.where(row[:, None] == row[None, :], 1.0, 0.0)
    for number in range(1, BLOCK_TOKENS):
        factors = tl.sum(tl.where(row[None, :] == number, system, 0.0), axis=1)
        solution = tl.sum(factors[:, None] * solved, axis=0)
        solved = solved - tl.where(row[:, None] == number, solution[None, :], 0.0)
    known = key * (rate * tl.exp(sums))[:, None]
    known = tl.dot(solved, known, input_precision=FORM.precision)
    at = tl.arange(0, FORM.key_room)
    mask = inside[:, None] & (at < FORM.key_size)[None, :]
    tl.store(work.known + place[:, None] * FORM.key_size + at[None, :], known, mask=mask)
    for start in range(0, FORM.value_size, FORM.columns):
        column = start + tl.arange(0, FORM.columns)
        value = _rows(delta.value, token, inside, head, FORM.heads, column, FORM.value_size)
        value = tl.dot(solved, value * rate[:, None], input_precision=FORM.precision)
        wide = inside[:, None] & (column < FORM.value_size)[None, :]
        tl.store(delta.out + place[:, None] * FORM.value_size + column[None, :], value, mask=wide)
    seen = row[:, None] >= row[None, :]  # [i, j]
    left = tl.exp(tl.where(seen, sums[:, None] - sums[None, :], 0.0))
    shares = tl.dot(query, tl.trans(key), input_precision=FORM.precision) * left * delta.scale
    shares = tl.where(seen, shares, 0.0)
    tl.store(
        work.shares + place[:, None] * BLOCK_TOKENS + row[None, :], shares, mask=inside[:, None]
    )


@triton.jit(do_not_specialize=["numbers"])
def delta_chunk_kernel(delta, work, state, batch, numbers, FORM: tl.constexpr):
    """Some columns of one head's matrix a program, chunk by chunk."""
    BLOCKS: tl.constexpr = (FORM.vectors * LANES + FORM.columns - 1) // FORM.columns
    head = tl.program_id(0) // BLOCKS
    column = tl.program_id(0) % BLOCKS * FORM.columns + tl.arange(0, FORM.columns)
    sequence, first, count = tokens_of(tl.program_id(1), numbers, batch, PROMPT)
    if count > 0:
        row = tl.arange(0, BLOCK_TOKENS)
        at = tl.arange(0, FORM.key_room)
        place, kept = _place(head, column, FORM)
        begin = tl.load(batch.positions + first)
        matrix = load_state(state, sequence, begin, place, kept)
        offset = begin % BLOCK_TOKENS
        end = first + count
        for start in tl.range(first - offset, end, BLOCK_TOKENS, num_stages=FORM.stages):
            token = start + row
            inside = (token >= first) & (token < end)
            key = _unit_rows(delta.key, token, inside, head, delta, FORM)
            query = _unit_rows(delta.query, token, inside, head, delta, FORM)
            logs = _chunk_logs(delta, token, inside, head, FORM)
            sums, total = tl.cumsum(logs, axis=0), tl.sum(logs, axis=0)
            known = _rows(work.known, token, inside, head, FORM.heads, at, FORM.key_size)
            shares = _rows(work.shares, token, inside, head, FORM.heads, row, BLOCK_TOKENS)
            change = _rows(delta.out, token, inside, head, FORM.heads, column, FORM.value_size)
            change -= tl.dot(known, matrix, input_precision=FORM.precision)
            query *= (tl.exp(sums) * delta.scale)[:, None]
            out = tl.dot(query, matrix, input_precision=FORM.precision)
            out = tl.dot(shares, change, out, input_precision=FORM.precision)
            result = (token.to(tl.int64) * FORM.heads + head)[:, None] * FORM.value_size
            wide = inside[:, None] & (column < FORM.value_size)[None, :]
            tl.store(delta.out + result + column[None, :], out, mask=wide)
            key *= tl.exp(total - sums)[:, None]
            matrix = tl.dot(
                tl.trans(key), change, matrix * tl.exp(total), input_precision=FORM.precision
            )
            ended = tl.minimum(start + BLOCK_TOKENS, end)
            position = begin + ended - 1 - first
            store_state(state, sequence, position, matrix, place, kept)
