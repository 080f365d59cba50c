"""Whole rows moved or changed one by one: embedding, norm, gate, selection, soft cap."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ingot.backends.gpu.kernels.activation import tanh
from ingot.backends.gpu.kernels.epilogue import to_half
from ingot.backends.gpu.kernels.order import start_next, wait_for_last
from ingot.backends.gpu.kernels.weights import (
    CHUNK,
    ROWS,
    SLICE,
    TILE_WORDS,
    chunk_slices,
    one_extra,
)


class Norm(NamedTuple):
    """Weights of a norm; `stride`, `scale`: of the rows it writes."""

    weight: torch.Tensor | None
    bias: torch.Tensor | None
    epsilon: float


class Embedding(NamedTuple):
    """What becomes of the rows of an embedding matrix."""

    factor: float
    learned: torch.Tensor | None  # floats [positions, width], added
    kinds: torch.Tensor | None  # floats [types, width], added
    out: torch.Tensor
    width: int


@triton.jit
def embed_kernel(
    ids,  # -1 - r: the token that row r of the step before sampled
    sampled,
    positions,
    types,
    weights,
    embedding,
    FORM: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """out[token] = factor * row ids[token] + those of its position and its type.

    A program unpacks a chunk of one row.
    """
    wait_for_last(AHEAD)
    start_next(AHEAD)
    token = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(0)
    chunks = weights.chunks
    row = tl.load(ids + token)
    if row < 0:
        row = tl.maximum(tl.load(sampled + (-1 - row)), 0)  # there may be none
    tile = (row // ROWS).to(tl.int64) + tl.zeros((1,), tl.int64)
    lane = row % ROWS + tl.zeros((1,), tl.int32)
    word = lane[:, None] * SLICE + tl.arange(0, SLICE)[None, :]
    code_words = weights.codes + (tile * chunks * (FORM.code_tiles * TILE_WORDS))[:, None] + word
    extra = 0
    if FORM.high > 0:
        shared = (chunks + FORM.chunk_multiple - 1) // FORM.chunk_multiple
        words = weights.extras + (tile * shared * TILE_WORDS)[:, None] + word
        extra = one_extra(words, chunk, FORM)
    group_scales = weights.scales + tile * chunks * (FORM.scale_pairs * ROWS) + lane
    w0, w1, w2, w3 = chunk_slices(code_words, extra, group_scales, chunk, FORM, False)
    position = tl.maximum(tl.load(positions + token), 0).to(tl.int64)
    learned_row, first = position * embedding.width, chunk * CHUNK
    kind_row = 0
    if embedding.kinds is not None:
        kind_row = tl.load(types + token) * embedding.width
    _store(w0, embedding, learned_row, kind_row, token, first)
    _store(w1, embedding, learned_row, kind_row, token, first + 16)
    _store(w2, embedding, learned_row, kind_row, token, first + 32)
    _store(w3, embedding, learned_row, kind_row, token, first + 48)


@triton.jit
def _store(
    weights,  # [1, 16]
    embedding,
    learned_row,
    kind_row,
    token,
    first,
):
    """A slice of an embedding."""
    at = first + tl.arange(0, SLICE)[None, :]
    inside = at < embedding.width
    value = weights.to(tl.float32) * embedding.factor
    if embedding.learned is not None:
        value += tl.load(embedding.learned + learned_row + at, mask=inside, other=0.0)
    if embedding.kinds is not None:
        value += tl.load(embedding.kinds + kind_row + at, mask=inside, other=0.0)
    tl.store(embedding.out + token * embedding.width + at, value, mask=inside)


@triton.jit
def norm_kernel(
    x,
    norm,
    residual,
    out,
    width,
    stride,
    scale,  # of halves
    BLOCK: tl.constexpr,
    NORM: tl.constexpr,  # 0: none, 1: RMS norm, 2: layer norm
    AHEAD: tl.constexpr,
):
    """One row a program: as halves for a linear layer, or as floats with a residual added.

    `out` has rows of `stride`, and zeros after the width.
    """
    token = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < width
    if norm.weight is not None:
        gain = tl.load(norm.weight + at, mask=inside, other=0.0)
    wait_for_last(AHEAD)
    start_next(AHEAD)
    value = tl.load(x + token * width + at, mask=inside, other=0.0)
    if NORM == 2:
        value = tl.where(inside, value - tl.sum(value) / width, 0.0)
    if NORM > 0:
        value = value / tl.sqrt(tl.sum(value * value) / width + norm.epsilon)
        if norm.weight is not None:
            value *= gain
        if norm.bias is not None:
            value += tl.load(norm.bias + at, mask=inside, other=0.0)
    if residual is not None:
        value += tl.load(residual + token * width + at, mask=inside, other=0.0)
    if out.dtype.element_ty == tl.float16:
        tl.store(out + token * stride + at, to_half(value * scale), mask=at < stride)
    else:
        tl.store(out + token * stride + at, value, mask=at < stride)


@triton.jit
def gate_rows_kernel(
    x,
    gate,
    residual,
    out,
    width,
    SIGMOID: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """out = sigmoid(gate) * x + residual, or gate * x + residual; a gate is one number."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    token = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    share = tl.load(gate + token)
    if SIGMOID:
        share = 1.0 / (1.0 + tl.exp(-share))
    value = tl.load(x + token * width + at, mask=inside, other=0.0) * share
    if residual is not None:
        value += tl.load(residual + token * width + at, mask=inside, other=0.0)
    tl.store(out + token * width + at, value, mask=inside)


@triton.jit
def select_kernel(x, wanted, out, width, BLOCK: tl.constexpr, AHEAD: tl.constexpr):
    """out[row] = x[wanted[row]]."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    row = tl.program_id(1).to(tl.int64)
    source = tl.load(wanted + row).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    tl.store(out + row * width + at, tl.load(x + source * width + at, mask=inside), mask=inside)


@triton.jit
def softcap_kernel(x, out, width, cap, BLOCK: tl.constexpr, AHEAD: tl.constexpr):
    """out = cap * tanh(x / cap)."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    row = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    value = tl.load(x + row * width + at, mask=inside, other=0.0)
    tl.store(out + row * width + at, tanh(value / cap) * cap, mask=inside)
