"""Multi-head latent attention: all heads look at one row of a token, which is key and value.

A row of the cache is the rotated part of a key, then the latent. A score is the product with both
of them; what is mixed are the latents. A tile of latents is read once for keys and values. When
decoding, heads are the rows of a tile; in prompts a tile is some tokens of one head.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ingot.backends.gpu.kernels.attention import (
    LOWEST,
    STAGES,
    absorb_scores,
    write_mean,
)
from ingot.backends.gpu.kernels.epilogue import store_rounded, to_half
from ingot.backends.gpu.kernels.heads import HeadNorm, RopeTable, rotated_heads
from ingot.backends.gpu.kernels.kv_cache import BLOCK_TOKENS, read_tile, side_start, write_row
from ingot.backends.gpu.kernels.order import start_next, wait_for_last


class LatentHeads(NamedTuple):
    """What linear layers leave: floats; and how queries and keys are rotated."""

    query: torch.Tensor  # [tokens, heads * size]
    key: torch.Tensor  # [tokens, rotary]
    latent: torch.Tensor  # [tokens, latent]
    norm: HeadNorm  # none
    rope: RopeTable


@dataclass(frozen=True, slots=True)
class LatentForm:
    """What a kernel is compiled for."""

    rotary: int  # elements of a row that only keys have
    latent: int  # and those that are values, too
    side: int  # elements of a block
    q8: bool

    @property
    def size(self) -> int:
        """Elements of a row."""
        return self.rotary + self.latent

    @property
    def padded(self) -> int:
        """The next power of two."""
        return int(triton.next_power_of_2(self.size))

    @property
    def rotary_padded(self) -> int:
        """The rotated part as attention holds it."""
        return int(max(16, triton.next_power_of_2(self.rotary)))

    @property
    def latent_padded(self) -> int:
        """The latent as attention holds it."""
        return int(max(16, triton.next_power_of_2(self.latent)))

    @property
    def even(self) -> bool:
        """Whether the parts of a row need no padding."""
        return (self.rotary, self.latent) == (self.rotary_padded, self.latent_padded)


@triton.jit
def store_latents_kernel(
    heads,
    rotated,  # out: halves [tokens, heads * size]
    positions,
    sequences,
    cache,
    count,  # query heads
    FORM: tl.constexpr,
    HEAD: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """One query head of one token a program; the last one stores the token's row."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    SIZE: tl.constexpr = FORM.size
    ROTARY: tl.constexpr = FORM.rotary
    token = tl.program_id(1).to(tl.int64)
    head = tl.program_id(0)
    position = tl.load(positions + token)
    at = tl.arange(0, FORM.padded)
    one = tl.zeros((1,), tl.int64)
    if position >= 0:
        if head < count:
            start = one + (token * count + head) * SIZE
            query = rotated_heads(
                heads.query, start, start >= 0, at, heads.norm, one, heads.rope, position,
                SIZE, 0, HEAD,
            )  # fmt: skip
            mask = (at < SIZE)[None, :]
            tl.store(rotated + start[:, None] + at[None, :], to_half(query), mask=mask)
        else:
            start = one + token * ROTARY
            key = rotated_heads(
                heads.key, start, start >= 0, at, heads.norm, one, heads.rope, position,
                ROTARY, 0, HEAD,
            )  # fmt: skip
            known = (at >= ROTARY) & (at < SIZE)
            latent_at = heads.latent + token * FORM.latent + at - ROTARY
            latent = tl.load(latent_at, mask=known, other=0.0)
            row = tl.where(at < ROTARY, tl.reshape(key, (at.shape[0],)), latent)
            sequence = tl.load(sequences + token)
            block = tl.load(cache.table + sequence * cache.table_stride + position // BLOCK_TOKENS)
            slot = position % BLOCK_TOKENS
            write_row(cache, side_start(block, cache, 0, 0, FORM), slot, at, row, at < SIZE, FORM)


@triton.jit
def read_queries(query, start, real, cache, FORM: tl.constexpr):
    """The two parts of some queries, [queries, part]."""
    at = tl.arange(0, FORM.rotary_padded)
    mask = real[:, None] & (at < FORM.rotary)[None, :]
    rotary = tl.load(query + start[:, None] + at[None, :], mask=mask, other=0.0)
    at = tl.arange(0, FORM.latent_padded)
    mask = real[:, None] & (at < FORM.latent)[None, :]
    latent = tl.load(query + start[:, None] + FORM.rotary + at[None, :], mask=mask, other=0.0)
    if cache.pool.dtype.element_ty == tl.float32:
        rotary = rotary.to(tl.float32)
        latent = latent.to(tl.float32)
    return rotary, latent


@triton.jit
def absorb_positions(
    rotary,
    latent,
    where,
    known,
    seen,
    pages,
    best,
    total,
    mixed,
    attention,
    cache,
    MASKED: tl.constexpr,
    FORM: tl.constexpr,
):
    """The state after some more positions."""
    if MASKED:
        block = tl.load(pages + where // BLOCK_TOKENS, mask=known, other=0)
    else:
        block = tl.load(pages + where // BLOCK_TOKENS)
    start, slot = side_start(block, cache, 0, 0, FORM), where % BLOCK_TOKENS
    # Where the rotated part is padded, keys are finite and queries 0.
    at = tl.arange(0, FORM.rotary_padded)
    keys = read_tile(cache, start, slot, known, at, MASKED, FORM).to(rotary.dtype)
    scores = tl.dot(rotary, tl.trans(keys))
    at = FORM.rotary + tl.arange(0, FORM.latent_padded)
    rows = read_tile(cache, start, slot, known, at, MASKED, FORM).to(latent.dtype)
    scores = tl.dot(latent, tl.trans(rows), scores)
    # Distances change nothing here.
    return absorb_scores(scores, rows, 0, 0, seen, best, total, mixed, attention, MASKED)


@triton.jit
def attend_latents_prompt_kernel(
    query,  # halves [tokens, heads * size]
    tiles,  # int32 [tiles, 4]: sequence, first token, tokens, length of the sequence
    positions,
    cache,
    attention,
    FORM: tl.constexpr,
    TILE: tl.constexpr,
):
    """Some tokens of one head; the last tiles, which see most, begin first."""
    ROWS: tl.constexpr = TILE.rows
    SPAN: tl.constexpr = TILE.span
    SIZE: tl.constexpr = FORM.size
    LATENT: tl.constexpr = FORM.latent
    PADDED: tl.constexpr = FORM.latent_padded
    tile = tl.num_programs(1) - 1 - tl.program_id(1)
    head = tl.program_id(0)
    sequence = tl.load(tiles + 4 * tile)
    first = tl.load(tiles + 4 * tile + 1)
    count = tl.load(tiles + 4 * tile + 2)
    if count == 0:  # a captured step has more tiles than most batches
        return
    row = tl.arange(0, ROWS)
    live = row < count
    token = (first + row).to(tl.int64)
    position = tl.load(positions + token, mask=live, other=-1)
    rotary, latent = read_queries(query, (token * attention.heads + head) * SIZE, live, cache, FORM)
    lowest = tl.load(positions + first)
    end = lowest + count
    best = tl.full((ROWS,), LOWEST, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, PADDED), tl.float32)
    pages = cache.table + sequence * cache.table_stride
    bounds = (0, (lowest + 1) // SPAN * SPAN, end)
    # What all queries see, and the newest positions.
    for stretch in tl.static_range(2):
        for base in tl.range(bounds[stretch], bounds[stretch + 1], SPAN, num_stages=STAGES):
            where = base + tl.arange(0, SPAN)
            best, total, mixed = absorb_positions(
                rotary, latent, where, where < end, position[:, None] >= where[None, :], pages,
                best, total, mixed, attention, cache, stretch == 1, FORM,
            )  # fmt: skip
    at = tl.arange(0, PADDED)
    place = (token * attention.heads + head)[:, None] * LATENT + at[None, :]
    mask = live[:, None] & (at < LATENT)[None, :]
    result = mixed / tl.where(live, total, 1.0)[:, None]
    store_rounded(attention.out + place, result, attention.out_scale, mask)


@triton.jit
def attend_latents_generation_kernel(
    query,  # halves [tokens, heads * size]
    first,
    positions,
    sequences,
    cache,
    attention,
    work,
    FORM: tl.constexpr,
    TILE: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Some heads of one token, and a part of its past; `join_parts_kernel` joins the parts."""
    LATENT: tl.constexpr = FORM.latent
    PADDED: tl.constexpr = FORM.latent_padded
    ROWS: tl.constexpr = TILE.rows
    SPAN: tl.constexpr = TILE.span
    PART: tl.constexpr = TILE.part
    part = tl.program_id(0)
    token = first + tl.program_id(2).to(tl.int64)
    position = tl.load(positions + token)
    sequence = tl.load(sequences + token)
    last_part = position // PART
    mine = (position >= 0) & (part <= last_part)
    if mine | (part == 0):  # so that one program waits, whatever the positions
        wait_for_last(AHEAD)
        start_next(AHEAD)
    if mine:
        head = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
        real = head < attention.heads
        start = (token * attention.heads + head) * FORM.size
        rotary, latent = read_queries(query, start, real, cache, FORM)
        best = tl.full((ROWS,), LOWEST, tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        mixed = tl.zeros((ROWS, PADDED), tl.float32)
        pages = cache.table + sequence * cache.table_stride
        high = tl.minimum(part * PART + PART, position + 1)
        for base in tl.range(part * PART, high, SPAN, num_stages=STAGES):
            where = base + tl.arange(0, SPAN)
            known = where <= position
            best, total, mixed = absorb_positions(
                rotary, latent, where, known, known[None, :], pages,
                best, total, mixed, attention, cache, True, FORM,
            )  # fmt: skip
        at = tl.arange(0, PADDED)
        if last_part > 0:
            member = tl.program_id(2).to(tl.int64) * attention.heads + head
            here = member * tl.num_programs(0) + part
            tl.store(work.mixed + here[:, None] * PADDED + at[None, :], mixed, mask=real[:, None])
            tl.store(work.best + here, best, mask=real)
            tl.store(work.total + here, total, mask=real)
        else:
            place = (token * attention.heads + head)[:, None] * LATENT + at[None, :]
            mask = real[:, None] & (at < LATENT)[None, :]
            write_mean(best, total, mixed, head, real, place, mask, attention)
