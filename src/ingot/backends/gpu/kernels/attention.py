"""One step of attention with a running softmax, shared by prompts and generation.

A tile of queries has seen some positions: `best` is the largest score of each, `total` the sum of
powers and `mixed` the sum of values, both relative to it. `absorb` adds a tile of positions. Tiles
that a query does not see at all leave it unchanged, to the last bit. `write_mean` stores the mean.
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


class Attention(NamedTuple):
    """What an attention is, whichever tokens it runs for."""

    sinks: torch.Tensor | None  # [heads]
    heads: int
    group: int  # query heads of a key/value head
    scale: float
    cap: float | None  # of the scores
    window: int  # positions that a token sees; 0: all
    out: torch.Tensor  # [tokens, heads * size], halves or floats
    out_scale: float  # of halves


@triton.jit
def absorb(
    query,  # [M, D]
    keys,  # [N, D]
    values,  # [N, D]
    seen,  # [M, N]
    best,
    total,
    mixed,
    attention,
    MASKED: tl.constexpr,
):
    """The state after one more tile of positions; scores are in powers of 2."""
    scores = tl.dot(query, tl.trans(keys.to(query.dtype))) * attention.scale
    if attention.cap is not None:
        scores = tanh(scores / attention.cap) * attention.cap
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
    mixed = tl.dot(powers.to(query.dtype), values.to(query.dtype), mixed)
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
