"""Norm and turn the heads of a token; queries become halves, keys and values go to the cache."""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.epilogue import to_half
from ingot.backends.gpu.kernels.kv_cache import BLOCK_TOKENS, side_start, write_row


@triton.jit
def _head(
    x,
    at,
    weight,
    epsilon,
    cos,
    sin,
    position,
    SIZE: tl.constexpr,
    NORM: tl.constexpr,  # 0: none, 1: RMS, 2: layer
    PAIRS: tl.constexpr,
    ADJACENT: tl.constexpr,
):
    """A head, normalized and turned."""
    inside = at < SIZE
    value = tl.load(x + at, mask=inside, other=0.0)
    mean = 0.0
    if NORM == 2:
        mean = tl.sum(value) / SIZE
        value = tl.where(inside, value - mean, 0.0)
    if NORM > 0:
        inverse = 1.0 / tl.sqrt(tl.sum(value * value) / SIZE + epsilon)
        value *= inverse * tl.load(weight + at, mask=inside, other=0.0)
    if PAIRS > 0:
        turns = at < 2 * PAIRS
        if ADJACENT:
            partner, pair, second = at ^ 1, at // 2, at % 2 == 1
        else:
            partner = tl.where(at < PAIRS, at + PAIRS, at - PAIRS)
            pair, second = at % PAIRS, at >= PAIRS
        other = tl.load(x + partner, mask=turns, other=0.0)
        if NORM > 0:
            other = (other - mean) * inverse * tl.load(weight + partner, mask=turns, other=0.0)
        c = tl.load(cos + position.to(tl.int64) * PAIRS + pair, mask=turns, other=1.0)
        s = tl.load(sin + position.to(tl.int64) * PAIRS + pair, mask=turns, other=0.0)
        value = value * c + other * tl.where(second, s, -s)
    return value


@triton.jit
def store_kv_kernel(
    query,
    key,
    value,
    turned,
    query_weight,
    key_weight,
    query_weight_stride,  # from a head's to the next one's
    key_weight_stride,
    query_epsilon,
    key_epsilon,
    cos,
    sin,
    positions,
    sequences,
    table,
    table_stride,
    pool,
    pool_scales,
    block_stride,
    layer_start,
    heads,
    kv_heads,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    SIDE: tl.constexpr,
    QUERY_NORM: tl.constexpr,
    KEY_NORM: tl.constexpr,
    PAIRS: tl.constexpr,
    ADJACENT: tl.constexpr,
    Q8: tl.constexpr,
):
    """One head of one token a program: query heads, then key heads, then value heads."""
    token = tl.program_id(1).to(tl.int64)
    head = tl.program_id(0)
    position = tl.load(positions + token)
    at = tl.arange(0, PADDED)
    inside = at < SIZE
    if position >= 0:
        if head < heads:
            x = query + (token * heads + head) * SIZE
            found = _head(
                x,
                at,
                query_weight + head * query_weight_stride if QUERY_NORM > 0 else query_weight,
                query_epsilon,
                cos,
                sin,
                position,
                SIZE,
                QUERY_NORM,
                PAIRS,
                ADJACENT,
            )
            tl.store(turned + (token * heads + head) * SIZE + at, to_half(found), mask=inside)
        else:
            sequence = tl.load(sequences + token)
            block = tl.load(table + sequence * table_stride + position // BLOCK_TOKENS)
            slot = position % BLOCK_TOKENS
            kv_head = (head - heads) % kv_heads
            if head < heads + kv_heads:
                x = key + (token * kv_heads + kv_head) * SIZE
                found = _head(
                    x,
                    at,
                    key_weight + kv_head * key_weight_stride if KEY_NORM > 0 else key_weight,
                    key_epsilon,
                    cos,
                    sin,
                    position,
                    SIZE,
                    KEY_NORM,
                    PAIRS,
                    ADJACENT,
                )
                start = side_start(block, layer_start, block_stride, kv_head, 0, SIDE)
                write_row(pool, pool_scales, start, slot, at, found, inside, SIZE, Q8)
            else:
                x = value + (token * kv_heads + kv_head) * SIZE
                found = tl.load(x + at, mask=inside, other=0.0)
                start = side_start(block, layer_start, block_stride, kv_head, 1, SIDE)
                write_row(pool, pool_scales, start, slot, at, found, inside, SIZE, Q8)
