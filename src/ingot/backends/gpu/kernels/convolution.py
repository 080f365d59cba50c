"""Causal convolutions of every channel; the state is the last rows of the source."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ingot.backends.gpu.kernels.activation import SILU, activate
from ingot.backends.gpu.kernels.kv_cache import BLOCK_TOKENS
from ingot.backends.gpu.kernels.order import start_next, wait_for_last
from ingot.backends.gpu.kernels.states import load_state, state_at, store_state, tokens_of


class Convolution(NamedTuple):
    """A convolution."""

    source: torch.Tensor  # [tokens, channels]
    weight: torch.Tensor  # [channels, taps]
    bias: torch.Tensor | None
    out: torch.Tensor
    channels: int


@dataclass(frozen=True, slots=True)
class ConvolutionForm:
    """What a kernel is compiled for."""

    taps: int
    silu: bool
    block: int  # channels that a program takes


@triton.jit
def convolve_kernel(
    conv,
    state,
    batch,
    FORM: tl.constexpr,
    SINGLE: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Some channels of one token a program. In steps of SINGLE tokens it moves the state on, too.

    Rows that are not of this step are read from the state before it.
    """
    wait_for_last(AHEAD)
    start_next(AHEAD)
    TAPS: tl.constexpr = FORM.taps
    token = tl.program_id(1).to(tl.int64)
    channel = tl.program_id(0) * FORM.block + tl.arange(0, FORM.block)
    inside = channel < conv.channels
    position = tl.load(batch.positions + token)
    if position >= 0:
        sequence = tl.load(batch.sequences + token)
        weights = conv.weight + channel * TAPS + TAPS - 1
        row = tl.load(conv.source + token * conv.channels + channel, mask=inside, other=0.0)
        sums = row * tl.load(weights, mask=inside, other=0.0)
        linked = position >= 0
        here = 0  # rows of this step before the token, as far as the taps reach
        for back in tl.static_range(1, TAPS):
            at = tl.maximum(token - back, 0)
            same = (tl.load(batch.sequences + at) == sequence) & (token >= back)
            linked = linked & same & (tl.load(batch.positions + at) == position - back)
            here += tl.where(linked, 1, 0)
            begin = position - here
            place = (TAPS - 1 - back + here) * conv.channels + channel
            past = load_state(state, sequence, begin, place, inside & (linked == 0))
            before = row
            row = tl.load(
                conv.source + at * conv.channels + channel, mask=inside & linked, other=0.0
            )
            row += past
            sums += row * tl.load(weights - back, mask=inside, other=0.0)
            if SINGLE:
                # What lay there has been read: it is `row`.
                tl.debug_barrier()
                place = (TAPS - 1 - back) * conv.channels + channel
                store_state(state, sequence, position, before, place, inside)
        if conv.bias is not None:
            sums += tl.load(conv.bias + channel, mask=inside, other=0.0)
        if FORM.silu:
            sums = activate(sums, SILU)
        tl.store(conv.out + token * conv.channels + channel, sums, mask=inside)


@triton.jit(do_not_specialize=["numbers"])
def keep_rows_kernel(
    conv,
    state,
    batch,
    numbers,
    FORM: tl.constexpr,
    MODE: tl.constexpr,
):
    """The last rows of the source become the state, of some channels of a sequence.

    The state after the last token is written first, and of each the oldest row: what is still read
    is not overwritten.
    """
    channel = tl.program_id(0) * FORM.block + tl.arange(0, FORM.block)
    sequence, first, count = tokens_of(tl.program_id(1), numbers, batch, MODE)
    if count > 0:
        begin = tl.load(batch.positions + first)
        newest = (begin + count - 1) // BLOCK_TOKENS
        for back in range(0, newest - begin // BLOCK_TOKENS + 1):
            run = newest - back
            after = tl.minimum((run + 1) * BLOCK_TOKENS - begin, count)
            _keep_rows(conv, state, sequence, begin, first, after, channel, FORM)


@triton.jit
def _keep_rows(conv, state, sequence, begin, first, after, channel, FORM: tl.constexpr):
    """The state after so many tokens of a step."""
    BEFORE: tl.constexpr = FORM.taps - 1
    inside = channel < conv.channels
    block, _ = state_at(state, sequence, (begin + after - 1) // BLOCK_TOKENS)
    for number in tl.static_range(BEFORE):
        back = after - BEFORE + number  # below 0: before the step
        place = (BEFORE + back) * conv.channels + channel
        row = load_state(state, sequence, begin, place, inside & (back < 0))
        token = (first + tl.maximum(back, 0)).to(tl.int64)
        row += tl.load(
            conv.source + token * conv.channels + channel, mask=inside & (back >= 0), other=0.0
        )
        tl.debug_barrier()
        place = number * conv.channels + channel
        store_state(state, sequence, begin + after - 1, row, place, inside & (block >= 0))
        tl.debug_barrier()
