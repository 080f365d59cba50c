"""Norm and turn the heads of a token; queries become halves, keys and values go to the cache."""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.epilogue import to_half
from ingot.backends.gpu.kernels.heads import turned_heads
from ingot.backends.gpu.kernels.kv_cache import BLOCK_TOKENS, side_start, write_row


@triton.jit
def store_head(
    key,
    value,
    start,  # [1]: where the head begins in both
    at,
    weight,
    weight_start,
    epsilon,
    cos,
    sin,
    position,
    block,
    pool,
    pool_scales,
    block_stride,
    layer_start,
    kv_head,
    SIZE: tl.constexpr,
    SIDE: tl.constexpr,
    NORM: tl.constexpr,
    PAIRS: tl.constexpr,
    ADJACENT: tl.constexpr,
    Q8: tl.constexpr,
):
    """A key head and its value to the cache."""
    inside = at < SIZE
    slot = position % BLOCK_TOKENS
    real = start >= 0
    found = turned_heads(
        key,
        start,
        real,
        at,
        weight,
        weight_start,
        epsilon,
        cos,
        sin,
        position,
        SIZE,
        NORM,
        PAIRS,
        ADJACENT,
    )
    row = side_start(block, layer_start, block_stride, kv_head, 0, SIDE)
    turned = tl.reshape(found, (at.shape[0],))
    write_row(pool, pool_scales, row, slot, at, turned, inside, SIZE, Q8)
    content = tl.load(value + tl.sum(start) + at, mask=inside, other=0.0)
    row = side_start(block, layer_start, block_stride, kv_head, 1, SIDE)
    write_row(pool, pool_scales, row, slot, at, content, inside, SIZE, Q8)


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
    """One head of one token a program: query heads, then key heads with their values."""
    token = tl.program_id(1).to(tl.int64)
    head = tl.program_id(0)
    position = tl.load(positions + token)
    at = tl.arange(0, PADDED)
    one = tl.zeros((1,), tl.int64)
    if position >= 0:
        if head < heads:
            start = one + (token * heads + head) * SIZE
            found = turned_heads(
                query,
                start,
                start >= 0,
                at,
                query_weight,
                one + head * query_weight_stride,
                query_epsilon,
                cos,
                sin,
                position,
                SIZE,
                QUERY_NORM,
                PAIRS,
                ADJACENT,
            )
            mask = (at < SIZE)[None, :]
            tl.store(turned + start[:, None] + at[None, :], to_half(found), mask=mask)
        else:
            kv_head = head - heads
            sequence = tl.load(sequences + token)
            block = tl.load(table + sequence * table_stride + position // BLOCK_TOKENS)
            store_head(
                key,
                value,
                one + (token * kv_heads + kv_head) * SIZE,
                at,
                key_weight,
                one + kv_head * key_weight_stride,
                key_epsilon,
                cos,
                sin,
                position,
                block,
                pool,
                pool_scales,
                block_stride,
                layer_start,
                kv_head,
                SIZE,
                SIDE,
                KEY_NORM,
                PAIRS,
                ADJACENT,
                Q8,
            )
