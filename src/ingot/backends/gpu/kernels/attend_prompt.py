"""Attention of the tokens of prompts: tiles of queries walk over the positions they see.

A tile is ROWS queries of one head and one sequence. Positions come in tiles of fixed bounds, so that
a token's result does not depend on how its prompt was cut.
"""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.attention import LOWEST, absorb, with_sink
from ingot.backends.gpu.kernels.epilogue import store_rounded
from ingot.backends.gpu.kernels.kv_cache import BLOCK_TOKENS, read_tile, side_start


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
    best = tl.full((ROWS,), LOWEST, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, PADDED), tl.float32)
    EVEN: tl.constexpr = SIZE == PADDED
    for base in tl.range(begin, end, SPAN, num_stages=STAGES):
        where = base + tl.arange(0, SPAN)
        known = where < end
        block = tl.load(
            table + sequence * table_stride + where // BLOCK_TOKENS, mask=known, other=0
        )
        slot = where % BLOCK_TOKENS
        start = side_start(block, layer_start, block_stride, kv_head, 0, SIDE)
        keys = read_tile(pool, pool_scales, start, slot, known, at, SIZE, Q8, EVEN)
        start = side_start(block, layer_start, block_stride, kv_head, 1, SIDE)
        values = read_tile(pool, pool_scales, start, slot, known, at, SIZE, Q8, EVEN)
        distance = position[:, None] - where[None, :]
        seen = distance >= 0
        if window > 0:
            seen &= distance < window
        best, total, mixed = absorb(
            q, keys, values, seen, best, total, mixed, scale, cap, CAPPED
        )
    if SINKS:
        shrink, total = with_sink(best, total, tl.load(sinks + head))
        mixed *= shrink[:, None]
    result = mixed / tl.where(live, total, 1.0)[:, None]
    store_rounded(out + place, result, out_scale, mask, HALF)
