"""Sparse attention over latents: score the positions of a past, choose some, attend to those.

Keys of an indexer lie in the cache like latents: what is rotated, then the rest. A token that sees
no more positions than it may choose takes all, and is not scored.
"""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.attention import LOWEST, write_mean
from ingot.backends.gpu.kernels.kv_cache import BLOCK_TOKENS, read_tile, side_start
from ingot.backends.gpu.kernels.latents import absorb_positions, read_queries

SIGN = tl.constexpr(1 << 31)
LOW_BITS = tl.constexpr((1 << 31) - 1)


@triton.jit
def score_positions_kernel(
    query,  # halves [tokens, heads * size]
    head_weights,  # floats [tokens, heads]
    scores,  # out: floats [tokens of the launch, stride]
    stride,
    first,  # token of the launch
    positions,
    sequences,
    cache,
    heads,
    choices,
    ROWS: tl.constexpr,
    SPAN: tl.constexpr,
    FORM: tl.constexpr,
):
    """Some positions of one token: the sum over heads of weight * max(0, query . key)."""
    token = first + tl.program_id(1).to(tl.int64)
    position = tl.load(positions + token)
    base = tl.program_id(0) * SPAN
    if (position >= choices) & (base <= position):
        where = base + tl.arange(0, SPAN)
        known = where <= position
        pages = cache.table + tl.load(sequences + token) * cache.table_stride
        block = tl.load(pages + where // BLOCK_TOKENS, mask=known, other=0)
        start, slot = side_start(block, cache, 0, 0, FORM), where % BLOCK_TOKENS
        turned_at = tl.arange(0, FORM.rotary_padded)
        rest_at = FORM.rotary + tl.arange(0, FORM.latent_padded)
        turned_keys = read_tile(cache, start, slot, known, turned_at, True, FORM)
        rest_keys = read_tile(cache, start, slot, known, rest_at, True, FORM)
        total = tl.zeros((SPAN,), tl.float32)
        for group in tl.range(0, heads, ROWS, num_stages=1):  # queries fill shared memory
            head = group + tl.arange(0, ROWS)
            real = head < heads
            at = (token * heads + head) * FORM.size
            turned, rest = read_queries(query, at, real, cache, FORM)
            matches = tl.dot(turned, tl.trans(turned_keys.to(turned.dtype)))
            matches = tl.dot(rest, tl.trans(rest_keys.to(rest.dtype)), matches)
            weight = tl.load(head_weights + token * heads + head, mask=real, other=0.0)
            total += tl.sum(tl.maximum(matches, 0.0) * weight[:, None], axis=0)
        own = tl.program_id(1).to(tl.int64)
        tl.store(scores + own * stride + where, total, mask=known)


@triton.jit
def _ranks(scores, base, count, SPAN: tl.constexpr):
    """Whole numbers in the order of scores, from 0 on; -1 after the last."""
    at = base + tl.arange(0, SPAN)
    known = at < count
    bits = (tl.load(scores + at, mask=known, other=0.0) + 0.0).to(tl.int32, bitcast=True)
    low = (bits & LOW_BITS).to(tl.int64)
    rank = tl.where(bits < 0, LOW_BITS - low, SIGN + low)
    return tl.where(known, rank, -1)


@triton.jit
def choose_kernel(
    scores,
    chosen,  # out: floats [tokens, choices]
    stride,
    first,
    positions,
    choices,
    SPAN: tl.constexpr,
):
    """The positions with the highest scores of one token; of equal scores the earlier ones."""
    own = tl.program_id(0).to(tl.int64)
    position = tl.load(positions + first + own)
    out = chosen + (first + own) * choices
    if position < choices:
        for base in tl.range(0, choices, SPAN):
            at = base + tl.arange(0, SPAN)
            tl.store(out + at, tl.where(at <= position, at, -1).to(tl.float32), mask=at < choices)
    else:
        count = position + 1
        scores += own * stride
        # The largest rank that so many have or exceed, bit by bit.
        edge = own * 0
        bit = edge + SIGN
        for _ in tl.range(0, 32):
            higher = own * 0
            for base in tl.range(0, count, SPAN):
                ranks = _ranks(scores, base, count, SPAN)
                higher += tl.sum((ranks >= edge + bit).to(tl.int64), axis=0)
            edge = tl.where(higher >= choices, edge + bit, edge)
            bit = bit >> 1
        above = own * 0
        for base in tl.range(0, count, SPAN):
            above += tl.sum((_ranks(scores, base, count, SPAN) > edge).to(tl.int64), axis=0)
        equal = choices - above  # of those with this very rank
        taken, same = own * 0, own * 0
        for base in tl.range(0, count, SPAN):
            ranks = _ranks(scores, base, count, SPAN)
            level = (ranks == edge).to(tl.int64)
            take = (ranks > edge) | ((ranks == edge) & (same + tl.cumsum(level, axis=0) <= equal))
            place = taken + tl.cumsum(take.to(tl.int64), axis=0) - 1
            at = base + tl.arange(0, SPAN)
            tl.store(out + place, at.to(tl.float32), mask=take)
            taken += tl.sum(take.to(tl.int64), axis=0)
            same += tl.sum(level, axis=0)


@triton.jit
def attend_chosen_kernel(
    query,  # halves [tokens, heads * size]
    chosen,  # floats [tokens, choices]
    positions,
    sequences,
    cache,
    attention,
    choices,
    ROWS: tl.constexpr,
    SPAN: tl.constexpr,
    FORM: tl.constexpr,
):
    """Some heads of one token over the positions that it has chosen."""
    LATENT: tl.constexpr = FORM.latent
    PADDED: tl.constexpr = FORM.latent_padded
    token = tl.program_id(1).to(tl.int64)
    position = tl.load(positions + token)
    if position >= 0:
        head = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        real = head < attention.heads
        start = (token * attention.heads + head) * FORM.size
        rotary, latent = read_queries(query, start, real, cache, FORM)
        best = tl.full((ROWS,), LOWEST, tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        mixed = tl.zeros((ROWS, PADDED), tl.float32)
        pages = cache.table + tl.load(sequences + token) * cache.table_stride
        count = tl.minimum(position + 1, choices)
        for base in tl.range(0, count, SPAN):
            at = base + tl.arange(0, SPAN)
            known = at < count
            where = tl.load(chosen + token * choices + at, mask=known, other=0.0).to(tl.int32)
            best, total, mixed = absorb_positions(
                rotary, latent, where, known, known[None, :], pages,
                best, total, mixed, attention, cache, True, FORM,
            )  # fmt: skip
        at = tl.arange(0, PADDED)
        place = (token * attention.heads + head)[:, None] * LATENT + at[None, :]
        mask = real[:, None] & (at < LATENT)[None, :]
        write_mean(best, total, mixed, head, real, place, mask, attention)
