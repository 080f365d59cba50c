"""Attention of one new token of each sequence: its past is shared out in parts of fixed bounds.

A program takes the query heads of one key head and a stripe of the parts: one of them if tokens are
few, every fourth if they are many. If a token sees several parts, `join_parts_kernel` joins them,
one program a head and token. With STORE, queries, keys and values come as linear layers leave them:
every program rotates its queries, and that of the newest part stores key and value first.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ingot.backends.gpu.kernels.attention import LOWEST, STAGES, absorb, decoded_range, write_mean
from ingot.backends.gpu.kernels.epilogue import to_half
from ingot.backends.gpu.kernels.heads import rotated_heads, store_head
from ingot.backends.gpu.kernels.kv_cache import BLOCK_TOKENS, read_tile, side_start
from ingot.backends.gpu.kernels.order import start_next, wait_for_last

MOST_PARTS = tl.constexpr(64)
_JOINED = tl.constexpr(8)  # parts at a time


class PartWork(NamedTuple):
    """Memory for the parts of a sequence's past: floats [tokens, heads, parts]."""

    mixed: torch.Tensor  # and [..., padded size]
    best: torch.Tensor
    total: torch.Tensor


@dataclass(frozen=True, slots=True)
class GenerationTile:
    """What a program takes."""

    rows: int  # query heads of a key head, filled up
    span: int  # positions of one step of its loop
    part: int  # positions


@triton.jit
def attend_generation_kernel(
    heads,  # with STORE; else queries are normalized and rotated, and keys and values stored
    first,
    positions,
    sequences,
    encoded,
    cache,
    attention,
    parts,
    work,
    FORM: tl.constexpr,
    TILE: tl.constexpr,
    HEAD: tl.constexpr,
    STORE: tl.constexpr,
    SEEN: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """A stripe without a part that its token sees has nothing to do."""
    SIZE: tl.constexpr = FORM.size
    PADDED: tl.constexpr = FORM.padded
    ROWS: tl.constexpr = TILE.rows
    SPAN: tl.constexpr = TILE.span
    PART: tl.constexpr = TILE.part
    group = attention.group
    stripe, stripes = tl.program_id(0), tl.num_programs(0)
    kv_head = tl.program_id(1)
    token = first + tl.program_id(2).to(tl.int64)
    position = tl.load(positions + token)
    oldest, newest = decoded_range(token, position, encoded, attention.window, SEEN)
    first_part = oldest // PART
    last_part = newest // PART
    nearest = first_part + (stripe + stripes - first_part % stripes) % stripes
    sequence = tl.load(sequences + token)
    mine = (position >= 0) & (nearest <= last_part)
    if mine | (stripe == 0):  # so that one program waits, whatever the positions
        wait_for_last(AHEAD)
        start_next(AHEAD)
    if mine:
        row = tl.arange(0, ROWS)
        at = tl.arange(0, PADDED)
        head = kv_head * group + row
        place = token * (attention.heads * SIZE) + head[:, None] * SIZE + at[None, :]
        mask = (row < group)[:, None] & (at < SIZE)[None, :]
        if STORE:
            q = rotated_heads(
                heads.query,
                token * (attention.heads * SIZE) + head * SIZE,
                row < group,
                at,
                heads.query_norm,
                head * heads.query_norm.stride,
                heads.rope,
                position,
                SIZE,
                HEAD.query_norm,
                HEAD,
            )
            q = to_half(q)
            if last_part % stripes == stripe:
                start = tl.zeros((1,), tl.int64) + (token * tl.num_programs(1) + kv_head) * SIZE
                block = tl.load(
                    cache.table + sequence * cache.table_stride + position // BLOCK_TOKENS
                )
                store_head(heads, start, at, kv_head, position, block, cache, FORM, HEAD)
            tl.debug_barrier()
        else:
            q = tl.load(heads.query + place, mask=mask, other=0.0)
            if heads.query.dtype.element_ty == tl.float32:
                q = to_half(q)
        FLOATS: tl.constexpr = cache.pool.dtype.element_ty == tl.float32
        LOADS: tl.constexpr = 1 if FLOATS else STAGES  # Triton 3.6 fails with two for gfx1100
        if FLOATS:
            q = q.to(tl.float32)
        for part in range(nearest, last_part + 1, stripes):
            low = tl.maximum(part * PART, oldest // SPAN * SPAN)
            high = tl.minimum(part * PART + PART, newest + 1)
            best = tl.full((ROWS,), LOWEST, tl.float32)
            total = tl.zeros((ROWS,), tl.float32)
            mixed = tl.zeros((ROWS, PADDED), tl.float32)
            for base in tl.range(low, high, SPAN, num_stages=LOADS):
                where = base + tl.arange(0, SPAN)
                known = (where <= newest) & (where >= oldest)
                block = tl.load(
                    cache.table + sequence * cache.table_stride + where // BLOCK_TOKENS,
                    mask=known,
                    other=0,
                )
                slot = where % BLOCK_TOKENS
                start = side_start(block, cache, kv_head, 0, FORM)
                keys = read_tile(cache, start, slot, known, at, True, FORM)
                start = side_start(block, cache, kv_head, 1, FORM)
                values = read_tile(cache, start, slot, known, at, True, FORM)
                distance = tl.zeros((ROWS, 1), tl.int32) + (position - where)[None, :]
                best, total, mixed = absorb(
                    q,
                    keys,
                    values,
                    distance,
                    tl.minimum(head, attention.heads - 1)[:, None],
                    known[None, :],
                    best,
                    total,
                    mixed,
                    attention,
                    True,
                )
            if first_part < last_part:
                real = row < group
                member = tl.program_id(2).to(tl.int64) * attention.heads + head
                here = member * parts + part
                mixed_at = work.mixed + here[:, None] * PADDED + at[None, :]
                tl.store(mixed_at, mixed, mask=real[:, None])
                tl.store(work.best + here, best, mask=real)
                tl.store(work.total + here, total, mask=real)
            else:
                write_mean(best, total, mixed, head, row < group, place, mask, attention)


@triton.jit
def join_parts_kernel(
    first,
    positions,
    encoded,
    attention,
    parts,
    work,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    PART: tl.constexpr,
    SEEN: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Some parts at a time; if a token sees only one, its attention is there already."""
    head = tl.program_id(0)
    token = first + tl.program_id(1).to(tl.int64)
    position = tl.load(positions + token)
    oldest, newest = decoded_range(token, position, encoded, attention.window, SEEN)
    first_part = oldest // PART
    count = newest // PART - first_part + 1
    wait_for_last(AHEAD)
    start_next(AHEAD)
    if count > 1:
        at = tl.arange(0, PADDED)
        number = tl.arange(0, MOST_PARTS)
        known = number < count
        member = tl.program_id(1).to(tl.int64) * attention.heads + head
        place = member * parts + first_part + number
        best = tl.load(work.best + place, mask=known, other=LOWEST)
        total = tl.load(work.total + place, mask=known, other=0.0)
        highest = tl.max(best, axis=0)
        share = tl.where(known, tl.exp2(best - highest), 0.0)
        mixed = tl.zeros((PADDED,), tl.float32)
        for base in range(0, count, _JOINED):
            next = base + tl.arange(0, _JOINED)
            some = member * parts + first_part + next
            score = tl.load(work.best + some, mask=next < count, other=LOWEST)
            values = tl.load(
                work.mixed + some[:, None] * PADDED + at[None, :],
                mask=(next < count)[:, None],
                other=0.0,
            )
            mixed += tl.sum(values * tl.exp2(score - highest)[:, None], axis=0)
        one = tl.zeros((1,), tl.int32)
        write_mean(
            highest + tl.zeros((1,), tl.float32),
            tl.sum(total * share, axis=0) + tl.zeros((1,), tl.float32),
            mixed[None, :],
            one + head,
            one == 0,
            token * (attention.heads * SIZE) + head * SIZE + at[None, :],
            (at < SIZE)[None, :],
            attention,
        )
