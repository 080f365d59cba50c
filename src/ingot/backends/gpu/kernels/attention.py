"""One step of attention with a running softmax, shared by prompts and generation.

A tile of queries has seen some positions: `best` is the largest score of each, `total` the sum of
powers and `mixed` the sum of values, both relative to it. `absorb` adds a tile of positions. Tiles
that a query does not see at all leave it as it is, to the last bit.
"""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.activation import tanh

LOWEST = tl.constexpr(-1.0e30)
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def absorb(
    query,  # [M, D]
    keys,  # [N, D]
    values,  # [N, D]
    seen,  # [M, N]
    best,
    total,
    mixed,
    scale,
    cap,
    CAPPED: tl.constexpr,
    MASKED: tl.constexpr,
):
    """The state after one more tile of positions; scores are in powers of 2."""
    scores = tl.dot(query, tl.trans(keys.to(query.dtype))) * scale
    if CAPPED:
        scores = tanh(scores / cap) * cap
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
