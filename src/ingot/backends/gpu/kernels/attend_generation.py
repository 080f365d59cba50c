"""Attention of one new token of each sequence: its past is shared out in parts of fixed bounds.

A program takes the query heads of one key head and one part of the positions. The program that
comes last joins the parts, in their order. With STORE, queries, keys and values come as linear maps
leave them: every program turns its queries, and that of the newest part stores key and value first.
"""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.attention import LOWEST, absorb, with_sink
from ingot.backends.gpu.kernels.epilogue import store_rounded, to_half
from ingot.backends.gpu.kernels.heads import turned_heads
from ingot.backends.gpu.kernels.kv_cache import BLOCK_TOKENS, read_tile, side_start
from ingot.backends.gpu.kernels.order import fetch, start_next, wait_for_last
from ingot.backends.gpu.kernels.store_kv import store_head

MOST_PARTS = tl.constexpr(64)


@triton.jit
def attend_generation_kernel(
    query,  # halves [tokens, heads * SIZE]; with STORE floats
    key,
    value,
    query_weight,
    key_weight,
    query_weight_stride,
    key_weight_stride,
    query_epsilon,
    key_epsilon,
    cos,
    sin,
    out,  # as the queries, halves or floats
    out_scale,
    first,
    positions,
    sequences,
    table,
    table_stride,
    pool,
    pool_scales,
    block_stride,
    layer_start,
    sinks,
    heads,
    group,
    scale,
    cap,
    window,
    work_mixed,  # [tokens from first on, heads, parts, PADDED]
    work_best,  # [tokens, heads, parts]
    work_total,
    counters,  # [tokens, key heads]
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    SIDE: tl.constexpr,
    ROWS: tl.constexpr,
    GROUP: tl.constexpr,
    TOGETHER: tl.constexpr,
    SPAN: tl.constexpr,
    PART: tl.constexpr,
    CAPPED: tl.constexpr,
    SINKS: tl.constexpr,
    Q8: tl.constexpr,
    HALF: tl.constexpr,
    STAGES: tl.constexpr,
    STORE: tl.constexpr,
    QUERY_NORM: tl.constexpr,
    KEY_NORM: tl.constexpr,
    PAIRS: tl.constexpr,
    ADJACENT: tl.constexpr,
    APART: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Parts that a token does not see have nothing to do."""
    part = tl.program_id(0)
    kv_head = tl.program_id(1)
    token = first + tl.program_id(2).to(tl.int64)
    position = tl.load(positions + token)
    oldest = 0
    if window > 0:
        oldest = tl.maximum(position - window + 1, 0)
    first_part = oldest // PART
    last_part = position // PART
    low = tl.maximum(part * PART, oldest // SPAN * SPAN)
    high = tl.minimum(part * PART + PART, position + 1)
    sequence = tl.load(sequences + token)
    if AHEAD:
        BYTES: tl.constexpr = 2 * SIDE * pool.dtype.element_ty.primitive_bitwidth // 8
        for base in range(low, high, BLOCK_TOKENS):
            block = tl.load(table + sequence * table_stride + base // BLOCK_TOKENS)
            start = side_start(block, layer_start, block_stride, kv_head, 0, SIDE)
            fetch(pool + start, BYTES, AHEAD)
    mine = (position >= 0) & (part >= first_part) & (part <= last_part)
    if mine | (part == 0):  # so that one program waits, whatever the positions
        wait_for_last(AHEAD)
        start_next(AHEAD)
    if mine:
        row = tl.arange(0, ROWS)
        at = tl.arange(0, PADDED)
        place = token * (heads * SIZE) + (kv_head * group + row)[:, None] * SIZE + at[None, :]
        mask = (row < group)[:, None] & (at < SIZE)[None, :]
        if STORE:
            head_of = kv_head * group + row
            q = turned_heads(
                query,
                token * (heads * SIZE) + head_of * SIZE,
                row < group,
                at,
                query_weight,
                head_of * query_weight_stride,
                query_epsilon,
                cos,
                sin,
                position,
                SIZE,
                QUERY_NORM,
                PAIRS,
                ADJACENT,
            )
            q = to_half(q)
            if part == last_part:
                one = tl.zeros((1,), tl.int64)
                store_head(
                    key,
                    value,
                    one + (token * tl.num_programs(1) + kv_head) * SIZE,
                    at,
                    key_weight,
                    one + kv_head * key_weight_stride,
                    key_epsilon,
                    cos,
                    sin,
                    position,
                    tl.load(table + sequence * table_stride + position // BLOCK_TOKENS),
                    pool,
                    pool_scales,
                    block_stride,
                    layer_start,
                    kv_head,
                    SIZE,
                    SIDE,
                    KEY_NORM,
                    PAIRS,
                    ADJACENT,
                    Q8,
                )
            tl.debug_barrier()
        else:
            q = tl.load(query + place, mask=mask, other=0.0)
        if pool.dtype.element_ty == tl.float32:
            q = q.to(tl.float32)
        best = tl.full((ROWS,), LOWEST, tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        mixed = tl.zeros((ROWS, PADDED), tl.float32)
        EVEN: tl.constexpr = SIZE == PADDED
        for base in tl.range(low, high, SPAN, num_stages=STAGES):
            where = base + tl.arange(0, SPAN)
            known = (where <= position) & (where >= oldest)
            block = tl.load(
                table + sequence * table_stride + where // BLOCK_TOKENS, mask=known, other=0
            )
            slot = where % BLOCK_TOKENS
            start = side_start(block, layer_start, block_stride, kv_head, 0, SIDE)
            keys = read_tile(pool, pool_scales, start, slot, known, at, SIZE, Q8, EVEN, True)
            start = side_start(block, layer_start, block_stride, kv_head, 1, SIDE)
            values = read_tile(pool, pool_scales, start, slot, known, at, SIZE, Q8, EVEN, True)
            best, total, mixed = absorb(
                q,
                keys,
                values,
                known[None, :],
                best,
                total,
                mixed,
                scale,
                cap,
                CAPPED,
                True,
            )
        if first_part < last_part:
            real = row < group
            pair = tl.program_id(2) * tl.num_programs(1) + kv_head
            parts = tl.num_programs(0)
            work_row = (tl.program_id(2).to(tl.int64) * heads + kv_head * group + row) * parts
            here = work_row + part
            tl.store(work_mixed + here[:, None] * PADDED + at[None, :], mixed, mask=real[:, None])
            tl.store(work_best + here, best, mask=real)
            tl.store(work_total + here, total, mask=real)
            ticket = -1
            if not APART:
                tl.debug_barrier()
                ticket = tl.atomic_add(counters + pair, 1, sem="acq_rel")
            if ticket == last_part - first_part:
                tl.store(counters + pair, 0)
                member = tl.arange(0, GROUP)
                head = kv_head * group + member
                ours = member < group
                all_best, all_total, all_mixed = _join(
                    work_mixed,
                    work_best,
                    work_total,
                    (tl.program_id(2).to(tl.int64) * heads + head) * parts,
                    ours,
                    first_part,
                    last_part,
                    PADDED,
                    TOGETHER,
                )
                there = token * (heads * SIZE) + head[:, None] * SIZE + at[None, :]
                _write(
                    all_best,
                    all_total,
                    all_mixed,
                    sinks,
                    head,
                    ours,
                    out + there,
                    ours[:, None] & (at < SIZE)[None, :],
                    out_scale,
                    SINKS,
                    HALF,
                )
        else:
            _write(
                best,
                total,
                mixed,
                sinks,
                kv_head * group + row,
                row < group,
                out + place,
                mask,
                out_scale,
                SINKS,
                HALF,
            )


@triton.jit
def join_kernel(
    out,
    out_scale,
    first,
    positions,
    sinks,
    heads,
    parts,
    window,
    work_mixed,
    work_best,
    work_total,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    PART: tl.constexpr,
    SINKS: tl.constexpr,
    HALF: tl.constexpr,
    AHEAD: tl.constexpr,
):
    head = tl.program_id(0)
    token = first + tl.program_id(1).to(tl.int64)
    position = tl.load(positions + token)
    oldest = 0
    if window > 0:
        oldest = tl.maximum(position - window + 1, 0)
    first_part = oldest // PART
    last_part = position // PART
    wait_for_last(AHEAD)
    start_next(AHEAD)
    if (position >= 0) & (first_part < last_part):
        at = tl.arange(0, PADDED)
        number = tl.arange(0, MOST_PARTS)
        known = number <= last_part - first_part
        place = (tl.program_id(1).to(tl.int64) * heads + head) * parts + first_part + number
        mixed = tl.load(
            work_mixed + place[:, None] * PADDED + at[None, :], mask=known[:, None], other=0.0
        )
        best = tl.load(work_best + place, mask=known, other=LOWEST)
        total = tl.load(work_total + place, mask=known, other=0.0)
        highest = tl.max(best, axis=0)
        share = tl.where(known, tl.exp2(best - highest), 0.0)
        one = tl.zeros((1,), tl.int32)
        all_total = tl.sum(total * share, axis=0)[None]
        all_mixed = tl.sum(mixed * share[:, None], axis=0)[None, :]
        there = token * (heads * SIZE) + head * SIZE + at[None, :]
        _write(
            highest[None],
            all_total,
            all_mixed,
            sinks,
            one + head,
            one == 0,
            out + there,
            (at < SIZE)[None, :],
            out_scale,
            SINKS,
            HALF,
        )


@triton.jit
def _join(
    work_mixed,
    work_best,
    work_total,
    start,  # [heads]: the first part of each
    real,
    first_part,
    last_part,
    PADDED: tl.constexpr,
    TOGETHER: tl.constexpr,
):
    """The state of some heads after all parts, TOGETHER of which are read at once."""
    HEADS: tl.constexpr = start.shape[0]
    at = tl.arange(0, PADDED)
    each = first_part + tl.arange(0, MOST_PARTS)
    seen = real[:, None] & (each <= last_part)[None, :]
    bests = work_best + start[:, None] + each[None, :]
    best = tl.max(tl.load(bests, mask=seen, other=LOWEST, cache_modifier=".cg"), axis=1)
    total = tl.zeros((HEADS,), tl.float32)
    mixed = tl.zeros((HEADS, PADDED), tl.float32)
    for base in tl.range(first_part, last_part + 1, TOGETHER, num_stages=3):
        number = base + tl.arange(0, TOGETHER)
        known = real[:, None] & (number <= last_part)[None, :]
        place = start[:, None] + number[None, :]
        found = tl.load(work_best + place, mask=known, other=LOWEST, cache_modifier=".cg")
        share = tl.where(known, tl.exp2(found - best[:, None]), 0.0)
        sums = tl.load(work_total + place, mask=known, other=0.0, cache_modifier=".cg")
        parts = tl.load(
            work_mixed + place[:, :, None] * PADDED + at[None, None, :],
            mask=known[:, :, None],
            other=0.0,
            cache_modifier=".cg",
        )
        total += tl.sum(sums * share, axis=1)
        mixed += tl.sum(parts * share[:, :, None], axis=1)
    return best, total, mixed


@triton.jit
def _write(
    best,
    total,
    mixed,
    sinks,
    head,
    real,
    place,
    mask,
    out_scale,
    SINKS: tl.constexpr,
    HALF: tl.constexpr,
):
    """The weighted mean of the values."""
    if SINKS:
        shrink, total = with_sink(best, total, tl.load(sinks + head, mask=real, other=0.0))
        mixed *= shrink[:, None]
    total = tl.where(real, total, 1.0)
    store_rounded(place, mixed / total[:, None], out_scale, mask, HALF)
