"""Attention of the tokens of prompts: tiles of queries walk over the positions they see.

A tile is some queries of one head and one sequence. Positions come in tiles of fixed bounds, so
that a token's result does not depend on how its prompt was cut.
"""

from dataclasses import dataclass

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.attention import (
    BOTH_WAYS,
    LOWEST,
    STAGES,
    absorb,
    is_seen,
    oldest_seen,
    with_sink,
)
from ingot.backends.gpu.kernels.epilogue import store_rounded, to_half
from ingot.backends.gpu.kernels.kv_cache import BLOCK_TOKENS, read_tile, side_start


@dataclass(frozen=True, slots=True)
class PromptTile:
    """Queries that a program takes, and positions of one step of its loop."""

    rows: int
    span: int


@triton.jit
def attend_prompt_kernel(
    query,  # halves [tokens, heads * size], or floats
    tiles,  # int32 [tiles, 4]: sequence, first token, tokens, length of the sequence
    positions,
    cache,
    attention,
    FORM: tl.constexpr,
    TILE: tl.constexpr,
    SEEN: tl.constexpr,
):
    """The last tiles, which see most, begin first."""
    ROWS: tl.constexpr = TILE.rows
    SPAN: tl.constexpr = TILE.span
    SIZE: tl.constexpr = FORM.size
    PADDED: tl.constexpr = FORM.padded
    window = attention.window
    tile = tl.num_programs(1) - 1 - tl.program_id(1)
    head = tl.program_id(0)
    sequence = tl.load(tiles + 4 * tile)
    first = tl.load(tiles + 4 * tile + 1)
    count = tl.load(tiles + 4 * tile + 2)
    if count == 0:  # a captured step has more tiles than most batches
        return
    row = tl.arange(0, ROWS)
    at = tl.arange(0, PADDED)
    live = row < count
    token = (first + row).to(tl.int64)
    position = tl.load(positions + token, mask=live, other=-1)
    place = token[:, None] * (attention.heads * SIZE) + head * SIZE + at[None, :]
    mask = live[:, None] & (at < SIZE)[None, :]
    q = tl.load(query + place, mask=mask, other=0.0)
    if query.dtype.element_ty == tl.float32:
        q = to_half(q)
    if cache.pool.dtype.element_ty == tl.float32:
        q = q.to(tl.float32)
    kv_head = head // attention.group
    lowest = tl.load(positions + first)
    highest = lowest + count - 1
    end, after = highest + 1, lowest + 1  # of what some queries see, and of what all do
    if SEEN == BOTH_WAYS:
        end = tl.load(tiles + 4 * tile + 3)
        after = end
        if window > 0:
            after = tl.minimum(lowest + window // 2 + 1, end)
            end = tl.minimum(highest + window // 2 + 1, end)
    begin = oldest_seen(lowest, window, SEEN) // SPAN * SPAN
    # Tiles that every query of this one sees whole need no mask.
    whole = begin
    if window > 0:
        whole = oldest_seen(highest, window, SEEN)
        whole = tl.minimum((whole + SPAN - 1) // SPAN * SPAN, end)
    masked = tl.maximum(after // SPAN * SPAN, whole)
    best = tl.full((ROWS,), LOWEST, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, PADDED), tl.float32)
    pages = cache.table + sequence * cache.table_stride
    bounds = (begin, whole, masked, end)
    # The window's edge, what all queries see, and the newest positions.
    for stretch in tl.static_range(3):
        if (stretch > 0) or (window > 0):
            for base in tl.range(bounds[stretch], bounds[stretch + 1], SPAN, num_stages=STAGES):
                best, total, mixed = _positions(
                    q,
                    base,
                    end,
                    position,
                    pages,
                    head,
                    kv_head,
                    best,
                    total,
                    mixed,
                    attention,
                    cache,
                    stretch != 1,
                    FORM,
                    TILE,
                    SEEN,
                )
    if attention.sinks is not None:
        shrink, total = with_sink(best, total, tl.load(attention.sinks + head))
        mixed *= shrink[:, None]
    result = mixed / tl.where(live, total, 1.0)[:, None]
    store_rounded(attention.out + place, result, attention.out_scale, mask)


@triton.jit
def _positions(
    q,
    base,
    end,
    position,
    pages,
    head,
    kv_head,
    best,
    total,
    mixed,
    attention,
    cache,
    MASKED: tl.constexpr,
    FORM: tl.constexpr,
    TILE: tl.constexpr,
    SEEN: tl.constexpr,
):
    """The state after the positions from `base` on."""
    at = tl.arange(0, FORM.padded)
    where = base + tl.arange(0, TILE.span)
    slot = where % BLOCK_TOKENS
    known = where < end
    if MASKED:
        block = tl.load(pages + where // BLOCK_TOKENS, mask=known, other=0)
        seen = is_seen(position, where, attention.window, SEEN) & known[None, :]
    else:
        block = tl.load(pages + where // BLOCK_TOKENS)
        seen = known[None, :]
    keys = read_tile(
        cache, side_start(block, cache, kv_head, 0, FORM), slot, known, at, MASKED, FORM
    )
    start = side_start(block, cache, kv_head, 1, FORM)
    values = read_tile(cache, start, slot, known, at, MASKED, FORM)
    distance = position[:, None] - where[None, :]
    return absorb(q, keys, values, distance, head, seen, best, total, mixed, attention, MASKED)
