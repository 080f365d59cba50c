"""Attention of one new token of each sequence: its past is shared out in parts of fixed bounds.

A program takes the query heads of one key head and one part of the positions; several parts are
joined by `join_parts_kernel`. With STORE, queries, keys and values come as linear maps leave them:
every program turns its queries, and that of the newest part stores key and value first.
"""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.attention import LOWEST, absorb
from ingot.backends.gpu.kernels.epilogue import to_half
from ingot.backends.gpu.kernels.heads import turned_heads
from ingot.backends.gpu.kernels.join_parts import write_mean
from ingot.backends.gpu.kernels.kv_cache import BLOCK_TOKENS, read_tile, side_start
from ingot.backends.gpu.kernels.order import start_next, wait_for_last
from ingot.backends.gpu.kernels.store_kv import store_head


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
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    SIDE: tl.constexpr,
    ROWS: tl.constexpr,
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
            member = tl.program_id(2).to(tl.int64) * heads + kv_head * group + row
            here = member * tl.num_programs(0) + part
            tl.store(work_mixed + here[:, None] * PADDED + at[None, :], mixed, mask=real[:, None])
            tl.store(work_best + here, best, mask=real)
            tl.store(work_total + here, total, mask=real)
        else:
            write_mean(
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
