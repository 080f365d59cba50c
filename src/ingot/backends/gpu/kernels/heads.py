"""Heads of a token, normalized and turned, as attention reads them."""

import triton
import triton.language as tl


@triton.jit
def turned_heads(
    x,
    start,  # [heads]: where each begins
    real,  # [heads]
    at,  # [PADDED]
    weight,
    weight_start,  # [heads]
    epsilon,
    cos,
    sin,
    position,
    SIZE: tl.constexpr,
    NORM: tl.constexpr,  # 0: none, 1: RMS, 2: layer
    PAIRS: tl.constexpr,
    ADJACENT: tl.constexpr,
):
    """Floats [heads, PADDED]. Sums are so exact that it does not show how they were added."""
    inside = real[:, None] & (at < SIZE)[None, :]
    value = tl.load(x + start[:, None] + at[None, :], mask=inside, other=0.0)
    mean = tl.zeros((start.shape[0],), tl.float32)
    if NORM == 2:
        mean = (tl.sum(value.to(tl.float64), axis=1) / SIZE).to(tl.float32)
        value = tl.where(inside, value - mean[:, None], 0.0)
    if NORM > 0:
        square = (tl.sum((value * value).to(tl.float64), axis=1) / SIZE).to(tl.float32)
        inverse = (1.0 / tl.sqrt(square + epsilon))[:, None]
        weights = weight + weight_start[:, None]
        value *= inverse * tl.load(weights + at[None, :], mask=inside, other=0.0)
    if PAIRS > 0:
        if ADJACENT:
            partner, pair, second = at ^ 1, at // 2, at % 2 == 1
        else:
            partner = tl.where(at < PAIRS, at + PAIRS, at - PAIRS)
            pair, second = at % PAIRS, at >= PAIRS
        turns = at < 2 * PAIRS
        both = real[:, None] & turns[None, :]
        other = tl.load(x + start[:, None] + partner[None, :], mask=both, other=0.0)
        if NORM > 0:
            theirs = tl.load(weights + partner[None, :], mask=both, other=0.0)
            other = (other - mean[:, None]) * inverse * theirs
        c = tl.load(cos + position.to(tl.int64) * PAIRS + pair, mask=turns, other=1.0)
        s = tl.load(sin + position.to(tl.int64) * PAIRS + pair, mask=turns, other=0.0)
        value = value * c[None, :] + other * tl.where(second, s, -s)[None, :]
    return value
