"""Rows of tokens and of hidden states, each after its RMS norm, side by side."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ingot.backends.gpu.kernels.order import start_next, wait_for_last


class JoinedParts(NamedTuple):
    """What is normed, and the weights of the norms."""

    token: torch.Tensor  # floats [rows, width]
    hidden: torch.Tensor  # the same
    token_norm: torch.Tensor
    hidden_norm: torch.Tensor
    epsilon: float


@triton.jit
def join_rows_kernel(
    parts,
    out,
    width,
    stride,  # of a row that is written
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """out = token, hidden, both normed, and hidden as it is if rows have room; a part a program."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    row, part = tl.program_id(1).to(tl.int64), tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < width
    source, weight = parts.hidden, parts.hidden_norm
    if part == 0:
        source, weight = parts.token, parts.token_norm
    value = tl.load(source + row * width + at, mask=inside, other=0.0)
    if part < 2:
        root = tl.sqrt(tl.sum(value * value) / width + parts.epsilon)
        value = value / root * tl.load(weight + at, mask=inside, other=0.0)
    tl.store(out + row * stride + part * width + at, value, mask=inside)
