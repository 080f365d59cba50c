"""One step of attention with a running softmax, shared by prompts and generation.

A tile of queries has seen some positions: `best` is the largest score of each, `total` the sum of
powers and `mixed` the sum of values, both relative to it. `absorb` adds a tile of positions, and
`absorb_scores` one whose products are there already. Tiles that a query does not see at all leave
it unchanged, to the last bit. `write_mean` stores the mean.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ingot.backends.gpu.kernels.activation import tanh
from ingot.backends.gpu.kernels.epilogue import store_rounded

LOWEST = tl.constexpr(-1.0e30)
LOG2E = tl.constexpr(1.4426950408889634)
STAGES = tl.constexpr(2)  # steps of a loop over positions whose loads are under way


# Which positions a token sees (`seen_code`).
CAUSAL = tl.constexpr(0)  # those up to its own, or the newest of them
CHUNKED = tl.constexpr(1)  # of those up to its own the ones in the same chunk
BOTH_WAYS = tl.constexpr(2)  # all of its sequence, or the nearest
ENCODED = tl.constexpr(3)  # those that an encoder wrote, whatever its own
DECODED = tl.constexpr(4)  # of those up to its own the ones after them


class Attention(NamedTuple):
    """What an attention is, whichever tokens it runs for."""

    sinks: torch.Tensor | None  # [heads]
    bias: torch.Tensor | None  # [heads, 2 * reach + 1]: what distances from -reach to reach add
    reach: int  # farther keys count as those
    slopes: torch.Tensor | None  # [heads]: what each step of distance takes away
    heads: int
    group: int  # query heads of a key/value head
    scale: float
    cap: float | None  # of the scores
    window: int  # positions that a token sees, or of a chunk; 0: all
    out: torch.Tensor  # [tokens, heads * size], halves or floats
    out_scale: float  # of halves


@triton.jit
def oldest_seen(position, window, SEEN: tl.constexpr):
    """The first position that a token sees."""
    oldest = position * 0
    if window > 0:
        if SEEN == CHUNKED:
            oldest = position // window * window
        elif SEEN == BOTH_WAYS:
            oldest = tl.maximum(position - window // 2, 0)
        else:
            oldest = tl.maximum(position - window + 1, 0)
    return oldest


@triton.jit
def decoded_range(
    token,
    position,
    encoded,  # [tokens]: positions that an encoder wrote of its sequence; or none
    window,
    SEEN: tl.constexpr,
):
    """The first and the last position that a token sees when it decodes."""
    oldest = oldest_seen(position, window, SEEN)
    newest = position
    if SEEN == ENCODED:
        newest = tl.load(encoded + token) - 1
    if SEEN == DECODED:
        oldest = tl.load(encoded + token)
    return oldest, newest


@triton.jit
def is_seen(position, where, window, SEEN: tl.constexpr):
    """Which positions tokens see, [M, N], of those that there are."""
    distance = position[:, None] - where[None, :]
    if SEEN == BOTH_WAYS:
        seen = (tl.abs(distance) <= window // 2) | (window == 0)
    else:
        seen = distance >= 0
        if window > 0:
            if SEEN == CHUNKED:
                seen &= where[None, :] >= (position // window * window)[:, None]
            else:
                seen &= distance < window
    return seen


@triton.jit
def absorb(
    query,  # [M, D]
    keys,  # [N, D]
    values,  # [N, D]
    distance,  # [M, N]: from keys to queries
    head,  # or [M, 1]
    seen,  # [M, N]
    best,
    total,
    mixed,
    attention,
    MASKED: tl.constexpr,
):
    """The state after one more tile of positions."""
    scores = tl.dot(query, tl.trans(keys.to(query.dtype)))
    values = values.to(query.dtype)
    return absorb_scores(
        scores, values, distance, head, seen, best, total, mixed, attention, MASKED
    )


@triton.jit
def absorb_scores(
    scores,  # [M, N]
    values,  # [N, D]
    distance,  # [M, N]
    head,
    seen,  # [M, N]
    best,
    total,
    mixed,
    attention,
    MASKED: tl.constexpr,
):
    """The same for products of queries and keys; scores are in powers of 2."""
    scores *= attention.scale
    if attention.cap is not None:
        scores = tanh(scores / attention.cap) * attention.cap
    if attention.bias is not None:
        reach = attention.reach
        at = tl.minimum(tl.maximum(-distance, -reach), reach) + reach
        scores += tl.load(attention.bias + head * (2 * reach + 1) + at)
    if attention.slopes is not None:
        scores -= tl.load(attention.slopes + head) * tl.abs(distance).to(tl.float32)
    scores *= LOG2E
    if MASKED:
        scores = tl.where(seen, scores, LOWEST)
    higher = tl.maximum(best, tl.max(scores, axis=1))
    powers = tl.exp2(scores - higher[:, None])
    if MASKED:
        powers = tl.where(seen, powers, 0.0)
    shrink = tl.exp2(best - higher)
    total = total * shrink + tl.sum(powers, axis=1)
    mixed = mixed * shrink[:, None]
    mixed = tl.dot(powers.to(values.dtype), values, mixed)
    return higher, total, mixed


@triton.jit
def with_sink(best, total, sink):
    """One more score that has no value."""
    score = sink * LOG2E
    higher = tl.maximum(best, score)
    shrink = tl.exp2(best - higher)
    return shrink, total * shrink + tl.exp2(score - higher)


@triton.jit
def write_mean(
    best,  # [heads]
    total,
    mixed,  # [heads, padded size]
    head,
    real,
    place,
    mask,
    attention,
):
    """Store the weighted mean of the values of some heads."""
    if attention.sinks is not None:
        sink = tl.load(attention.sinks + head, mask=real, other=0.0)
        shrink, total = with_sink(best, total, sink)
        mixed *= shrink[:, None]
    total = tl.where(real, total, 1.0)
    store_rounded(attention.out + place, mixed / total[:, None], attention.out_scale, mask)
