"""Heads of a token: normalized and rotated (RoPE), as attention reads them, and stored.

`store_kv_kernel` does it for all tokens of a step: queries become halves, keys and values go to the
cache. In steps of one token per sequence, `attend_generation_kernel` does it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ingot.backends.gpu.kernels.epilogue import to_half
from ingot.backends.gpu.kernels.kv_cache import BLOCK_TOKENS, side_start, write_row


class HeadNorm(NamedTuple):
    """The norm of each head, if it has one."""

    weight: torch.Tensor | None = None
    stride: int = 0  # from the weights of a head to the next one's
    epsilon: float = 0.0


class RopeTable(NamedTuple):
    """Cosines and sines [positions, pairs], if heads are rotated."""

    cos: torch.Tensor | None = None
    sin: torch.Tensor | None = None


class Heads(NamedTuple):
    """What linear layers leave: floats [tokens, heads * size]; and what is to be done with them."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    query_norm: HeadNorm
    key_norm: HeadNorm
    rope: RopeTable


@dataclass(frozen=True, slots=True)
class HeadForm:
    """What a kernel is compiled for."""

    query_norm: int  # 0: none, 1: RMS norm, 2: layer norm
    key_norm: int
    pairs: int  # values of a head that are rotated, by two; 0: none
    interleaved: bool  # the layout of RoPE; else half-split
    norms_last: bool = False  # after RoPE


@triton.jit
def rotated_heads(
    x,
    start,  # [heads]: where each begins
    real,  # [heads]
    at,  # [padded size]
    norm,
    weight_start,  # [heads]
    rope,
    position,
    SIZE: tl.constexpr,
    NORM: tl.constexpr,
    HEAD: tl.constexpr,
):
    """Floats [heads, padded size]. Sums are so exact that the order of additions does not show."""
    inside = real[:, None] & (at < SIZE)[None, :]
    BEFORE: tl.constexpr = 0 if HEAD.norms_last else NORM
    value = tl.load(x + start[:, None] + at[None, :], mask=inside, other=0.0)
    mean = tl.zeros((start.shape[0],), tl.float32)
    inverse = tl.full((start.shape[0],), 1.0, tl.float32)
    if BEFORE > 0:
        value, mean, inverse = _normed(value, inside, norm.epsilon, SIZE, BEFORE)
        if norm.weight is not None:
            weights = norm.weight + weight_start[:, None]
            value *= tl.load(weights + at[None, :], mask=inside, other=0.0)
    PAIRS: tl.constexpr = HEAD.pairs
    if PAIRS > 0:
        if HEAD.interleaved:
            partner, pair, second = at ^ 1, at // 2, at % 2 == 1
        else:
            partner = tl.where(at < PAIRS, at + PAIRS, at - PAIRS)
            pair, second = at % PAIRS, at >= PAIRS
        rotated = at < 2 * PAIRS
        both = real[:, None] & rotated[None, :]
        other = tl.load(x + start[:, None] + partner[None, :], mask=both, other=0.0)
        if BEFORE > 0:
            other = (other - mean[:, None]) * inverse[:, None]
            if norm.weight is not None:
                other *= tl.load(weights + partner[None, :], mask=both, other=0.0)
        place = position.to(tl.int64) * PAIRS + pair
        c = tl.load(rope.cos + place, mask=rotated, other=1.0)
        s = tl.load(rope.sin + place, mask=rotated, other=0.0)
        value = value * c[None, :] + other * tl.where(second, s, -s)[None, :]
    if HEAD.norms_last and NORM > 0:
        value, mean, inverse = _normed(value, inside, norm.epsilon, SIZE, NORM)
        if norm.weight is not None:
            weights = norm.weight + weight_start[:, None]
            value *= tl.load(weights + at[None, :], mask=inside, other=0.0)
    return value


@triton.jit
def _normed(value, inside, epsilon, SIZE: tl.constexpr, NORM: tl.constexpr):
    """Heads after their norm, before its weights; the mean and 1 / deviation of each."""
    mean = tl.zeros((value.shape[0],), tl.float32)
    if NORM == 2:
        mean = (tl.sum(value.to(tl.float64), axis=1) / SIZE).to(tl.float32)
        value = tl.where(inside, value - mean[:, None], 0.0)
    square = (tl.sum((value * value).to(tl.float64), axis=1) / SIZE).to(tl.float32)
    inverse = 1.0 / tl.sqrt(square + epsilon)
    return value * inverse[:, None], mean, inverse


@triton.jit
def store_head(
    heads,
    start,  # [1]: where the head begins in keys and values
    at,
    kv_head,
    position,
    block,
    cache,
    FORM: tl.constexpr,
    HEAD: tl.constexpr,
):
    """A key head and its value to the cache."""
    SIZE: tl.constexpr = FORM.size
    inside = at < SIZE
    slot = position % BLOCK_TOKENS
    weight_start = tl.zeros((1,), tl.int64) + kv_head * heads.key_norm.stride
    key = rotated_heads(
        heads.key,
        start,
        start >= 0,
        at,
        heads.key_norm,
        weight_start,
        heads.rope,
        position,
        SIZE,
        HEAD.key_norm,
        HEAD,
    )
    row = side_start(block, cache, kv_head, 0, FORM)
    write_row(cache, row, slot, at, tl.reshape(key, (at.shape[0],)), inside, FORM)
    value = tl.load(heads.value + tl.sum(start) + at, mask=inside, other=0.0)
    row = side_start(block, cache, kv_head, 1, FORM)
    write_row(cache, row, slot, at, value, inside, FORM)


@triton.jit
def store_kv_kernel(
    heads,
    rotated,  # out: halves [tokens, query heads * size]
    positions,
    sequences,
    cache,
    count,  # query heads
    kv_count,
    FORM: tl.constexpr,
    HEAD: tl.constexpr,
):
    """One head of one token a program: query heads, then key heads with their values."""
    SIZE: tl.constexpr = FORM.size
    token = tl.program_id(1).to(tl.int64)
    head = tl.program_id(0)
    position = tl.load(positions + token)
    at = tl.arange(0, FORM.padded)
    one = tl.zeros((1,), tl.int64)
    if position >= 0:
        if head < count:
            start = one + (token * count + head) * SIZE
            query = rotated_heads(
                heads.query,
                start,
                start >= 0,
                at,
                heads.query_norm,
                one + head * heads.query_norm.stride,
                heads.rope,
                position,
                SIZE,
                HEAD.query_norm,
                HEAD,
            )
            mask = (at < SIZE)[None, :]
            tl.store(rotated + start[:, None] + at[None, :], to_half(query), mask=mask)
        else:
            kv_head = head - count
            sequence = tl.load(sequences + token)
            block = tl.load(cache.table + sequence * cache.table_stride + position // BLOCK_TOKENS)
            start = one + (token * kv_count + kv_head) * SIZE
            store_head(heads, start, at, kv_head, position, block, cache, FORM, HEAD)
