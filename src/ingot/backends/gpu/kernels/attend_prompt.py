"""Attention of the tokens of prompts: tiles of queries walk over the positions they see.

A tile is some queries of one head and one sequence. Positions come in tiles of fixed bounds, so
that a token's result does not depend on how its prompt was cut.
"""

from dataclasses import dataclass

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.attention import LOWEST, STAGES, absorb, with_sink
from ingot.backends.gpu.kernels.epilogue import store_rounded
from ingot.backends.gpu.kernels.kv_cache import BLOCK_TOKENS, read_tile, side_start


@dataclass(frozen=True, slots=True)
class PromptTile:
    """Queries that a program takes, and positions of one step of its loop."""

    rows: int
    span: int


@triton.jit
def attend_prompt_kernel(
    query,  # halves [tokens, heads * size]
    tiles,  # int32 [tiles, 3]: sequence, first token, tokens
    positions,
    cache,
    attention,
    FORM: tl.constexpr,
    TILE: tl.constexpr,
):
    """The last tiles, which see most, begin first."""
    ROWS: tl.constexpr = TILE.rows
    SPAN: tl.constexpr = TILE.span
    SIZE: tl.constexpr = FORM.size
    PADDED: tl.constexpr = FORM.padded
    window = attention.window
    tile = tl.num_programs(1) - 1 - tl.program_id(1)
    head = tl.program_id(0)
    sequence = tl.load(tiles + 3 * tile)
    first = tl.load(tiles + 3 * tile + 1)
    count = tl.load(tiles + 3 * tile + 2)
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
    if cache.pool.dtype.element_ty == tl.float32:
        q = q.to(tl.float32)
    kv_head = head // attention.group
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
                    kv_head,
                    best,
                    total,
                    mixed,
                    attention,
                    cache,
                    stretch != 1,
                    FORM,
                    TILE,
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
    kv_head,
    best,
    total,
    mixed,
    attention,
    cache,
    MASKED: tl.constexpr,
    FORM: tl.constexpr,
    TILE: tl.constexpr,
):
    """The state after the positions from `base` on."""
    at = tl.arange(0, FORM.padded)
    where = base + tl.arange(0, TILE.span)
    slot = where % BLOCK_TOKENS
    known = where < end
    if MASKED:
        block = tl.load(pages + where // BLOCK_TOKENS, mask=known, other=0)
        distance = position[:, None] - where[None, :]
        seen = distance >= 0
        if attention.window > 0:
            seen &= distance < attention.window
    else:
        block = tl.load(pages + where // BLOCK_TOKENS)
        seen = known[None, :]
    keys = read_tile(
        cache, side_start(block, cache, kv_head, 0, FORM), slot, known, at, MASKED, FORM
    )
    start = side_start(block, cache, kv_head, 1, FORM)
    values = read_tile(cache, start, slot, known, at, MASKED, FORM)
    return absorb(q, keys, values, seen, best, total, mixed, attention, MASKED)
