"""Attention of the tokens of prompts: tiles of queries walk over the positions they see.

A tile is ROWS queries of one head and one sequence. Positions come in tiles of fixed bounds, so
that a token's result does not depend on how its prompt was cut.
"""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.attention import LOWEST, absorb, with_sink
from ingot.backends.gpu.kernels.epilogue import store_rounded
from ingot.backends.gpu.kernels.kv_cache import BLOCK_TOKENS, read_tile, side_start


@triton.jit
def _tile(
    q,
    base,
    end,
    position,
    window,
    pages,
    pool,
    pool_scales,
    block_stride,
    layer_start,
    kv_head,
    best,
    total,
    mixed,
    scale,
    cap,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    SIDE: tl.constexpr,
    SPAN: tl.constexpr,
    CAPPED: tl.constexpr,
    Q8: tl.constexpr,
    MASKED: tl.constexpr,
):
    """The state after the positions from `base` on."""
    at = tl.arange(0, PADDED)
    EVEN: tl.constexpr = SIZE == PADDED
    where = base + tl.arange(0, SPAN)
    slot = where % BLOCK_TOKENS
    known = where < end
    if MASKED:
        block = tl.load(pages + where // BLOCK_TOKENS, mask=known, other=0)
        distance = position[:, None] - where[None, :]
        seen = distance >= 0
        if window > 0:
            seen &= distance < window
    else:
        block = tl.load(pages + where // BLOCK_TOKENS)
        seen = known[None, :]
    start = side_start(block, layer_start, block_stride, kv_head, 0, SIDE)
    keys = read_tile(pool, pool_scales, start, slot, known, at, SIZE, Q8, EVEN, MASKED)
    start = side_start(block, layer_start, block_stride, kv_head, 1, SIDE)
    values = read_tile(pool, pool_scales, start, slot, known, at, SIZE, Q8, EVEN, MASKED)
    return absorb(q, keys, values, seen, best, total, mixed, scale, cap, CAPPED, MASKED)


@triton.jit
def attend_prompt_kernel(
    query,  # halves [tokens, heads * SIZE]
    out,  # the same, halves or floats
    out_scale,
    tiles,  # int32 [tiles, 3]: sequence, first token, tokens
    positions,
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
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    SIDE: tl.constexpr,
    ROWS: tl.constexpr,
    SPAN: tl.constexpr,
    CAPPED: tl.constexpr,
    SINKS: tl.constexpr,
    Q8: tl.constexpr,
    HALF: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The last tiles, which see most, begin first."""
    tile = tl.num_programs(1) - 1 - tl.program_id(1)
    head = tl.program_id(0)
    sequence = tl.load(tiles + 3 * tile)
    first = tl.load(tiles + 3 * tile + 1)
    count = tl.load(tiles + 3 * tile + 2)
    row = tl.arange(0, ROWS)
    at = tl.arange(0, PADDED)
    live = row < count
    token = (first + row).to(tl.int64)
    position = tl.load(positions + token, mask=live, other=-1)
    place = token[:, None] * (heads * SIZE) + head * SIZE + at[None, :]
    mask = live[:, None] & (at < SIZE)[None, :]
    q = tl.load(query + place, mask=mask, other=0.0)
    if pool.dtype.element_ty == tl.float32:
        q = q.to(tl.float32)
    kv_head = head // group
    lowest = tl.load(positions + first)
    end = lowest + count
    begin = 0
    if window > 0:
        begin = tl.maximum(lowest - window + 1, 0) // SPAN * SPAN
    # Tiles that every query of this one sees whole need no mask.
    whole = begin
    if window > 0:
        whole = tl.maximum(lowest + ROWS - window, 0)
        whole = tl.minimum((whole + SPAN - 1) // SPAN * SPAN, end)
    masked = tl.maximum((lowest + 1) // SPAN * SPAN, whole)
    best = tl.full((ROWS,), LOWEST, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, PADDED), tl.float32)
    pages = table + sequence * table_stride
    if window > 0:
        for base in tl.range(begin, whole, SPAN, num_stages=STAGES):
            best, total, mixed = _tile(
                q,
                base,
                end,
                position,
                window,
                pages,
                pool,
                pool_scales,
                block_stride,
                layer_start,
                kv_head,
                best,
                total,
                mixed,
                scale,
                cap,
                SIZE,
                PADDED,
                SIDE,
                SPAN,
                CAPPED,
                Q8,
                True,
            )
    for base in tl.range(whole, masked, SPAN, num_stages=STAGES):
        best, total, mixed = _tile(
            q,
            base,
            end,
            position,
            window,
            pages,
            pool,
            pool_scales,
            block_stride,
            layer_start,
            kv_head,
            best,
            total,
            mixed,
            scale,
            cap,
            SIZE,
            PADDED,
            SIDE,
            SPAN,
            CAPPED,
            Q8,
            False,
        )
    for base in tl.range(masked, end, SPAN, num_stages=STAGES):
        best, total, mixed = _tile(
            q,
            base,
            end,
            position,
            window,
            pages,
            pool,
            pool_scales,
            block_stride,
            layer_start,
            kv_head,
            best,
            total,
            mixed,
            scale,
            cap,
            SIZE,
            PADDED,
            SIDE,
            SPAN,
            CAPPED,
            Q8,
            True,
        )
    if SINKS:
        shrink, total = with_sink(best, total, tl.load(sinks + head))
        mixed *= shrink[:, None]
    result = mixed / tl.where(live, total, 1.0)[:, None]
    store_rounded(out + place, result, out_scale, mask, HALF)
