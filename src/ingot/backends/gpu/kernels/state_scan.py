"""State spaces (Mamba): every channel has a state that each token updates, and reads.

When decoding, tokens go one after the other (`scan_walk_kernel`). A prompt runs in chunks of 32
positions with fixed bounds. If all elements of a head's states decay alike (Mamba 2),
`scan_chunk_kernel` computes the outputs of a chunk, and the states after it, with products of small
matrices. If every element decays in its own way (Mamba), `scan_elements_kernel` computes the states
of a chunk's tokens by a parallel scan.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ingot.backends.gpu.kernels.kv_cache import BLOCK_TOKENS
from ingot.backends.gpu.kernels.order import start_next, wait_for_last
from ingot.backends.gpu.kernels.states import (
    LANES,
    PROMPT,
    load_state,
    store_state,
    tokens_of,
)


class StateScan(NamedTuple):
    """What a state space reads and writes."""

    x: torch.Tensor  # [tokens, channels]
    step: torch.Tensor  # [tokens, heads]
    b: torch.Tensor  # [tokens, groups * states]
    c: torch.Tensor
    decay: torch.Tensor  # [heads, states, or 1]
    skip: torch.Tensor  # [heads]
    out: torch.Tensor


@dataclass(frozen=True, slots=True)
class ScanForm:
    """What a kernel is compiled for."""

    heads: int
    head_size: int  # channels
    groups: int
    group_channels: int
    states: int  # elements of a channel's state
    state_room: int  # filled up
    vectors: int  # of 16 channels of a group
    one_decay: bool
    block: int  # channels that a program takes
    precision: str  # of products
    stages: int  # chunks whose loads are under way


@triton.jit
def _place(group, inner, FORM: tl.constexpr):
    """Where the states [states, channels] lie, and which there are."""
    at = tl.arange(0, FORM.state_room)
    vector = inner // LANES
    place = ((group * FORM.vectors + vector) * FORM.states)[None, :] + at[:, None]
    place = place * LANES + (inner % LANES)[None, :]
    return place, (at < FORM.states)[:, None] & (vector < FORM.vectors)[None, :]


@triton.jit(do_not_specialize=["numbers"])
def scan_walk_kernel(
    scan,
    state,
    batch,
    numbers,
    FORM: tl.constexpr,
    MODE: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Some channels of one group a program, token by token."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    BLOCKS: tl.constexpr = (FORM.group_channels + FORM.block - 1) // FORM.block
    CHANNELS: tl.constexpr = FORM.groups * FORM.group_channels
    group = tl.program_id(0) // BLOCKS
    inner = tl.program_id(0) % BLOCKS * FORM.block + tl.arange(0, FORM.block)
    sequence, first, count = tokens_of(tl.program_id(1), numbers, batch, MODE)
    if count > 0:
        at = tl.arange(0, FORM.state_room)
        some, real = inner < FORM.group_channels, at < FORM.states
        channel = group * FORM.group_channels + inner
        head = channel // FORM.head_size
        place, kept = _place(group, inner, FORM)
        begin = tl.load(batch.positions + first)
        held = load_state(state, sequence, begin, place, kept)
        skip = tl.load(scan.skip + head, mask=some, other=0.0)
        if FORM.one_decay:
            decay = tl.load(scan.decay + head, mask=some, other=0.0)[None, :]
        else:
            both = real[:, None] & some[None, :]
            own = (head * FORM.states)[None, :] + at[:, None]
            decay = tl.load(scan.decay + own, mask=both, other=0.0)
        for number in range(count):
            token = (first + number).to(tl.int64)
            x = tl.load(scan.x + token * CHANNELS + channel, mask=some, other=0.0)
            step = tl.load(scan.step + token * FORM.heads + head, mask=some, other=0.0)
            row = (token * FORM.groups + group) * FORM.states + at
            coming = tl.load(scan.b + row, mask=real, other=0.0)
            seen = tl.load(scan.c + row, mask=real, other=0.0)
            held = held * tl.exp(step[None, :] * decay) + coming[:, None] * (step * x)[None, :]
            out = tl.sum(held * seen[:, None], axis=0) + skip * x
            tl.store(scan.out + token * CHANNELS + channel, out, mask=some)
            position = begin + number
            ends = (position % BLOCK_TOKENS == BLOCK_TOKENS - 1) | (number == count - 1)
            store_state(state, sequence, position, held, place, kept & ends)


@triton.jit(do_not_specialize=["numbers"])
def scan_chunk_kernel(scan, state, batch, numbers, FORM: tl.constexpr):
    """Some channels of one head a program, chunk by chunk."""
    BLOCKS: tl.constexpr = (FORM.head_size + FORM.block - 1) // FORM.block
    CHANNELS: tl.constexpr = FORM.groups * FORM.group_channels
    head = tl.program_id(0) // BLOCKS
    column = tl.program_id(0) % BLOCKS * FORM.block + tl.arange(0, FORM.block)
    sequence, first, count = tokens_of(tl.program_id(1), numbers, batch, PROMPT)
    if count > 0:
        row = tl.arange(0, BLOCK_TOKENS)
        at = tl.arange(0, FORM.state_room)
        some, real = column < FORM.head_size, at < FORM.states
        channel = head * FORM.head_size + column
        group = head * FORM.head_size // FORM.group_channels
        place, kept = _place(group, channel % FORM.group_channels, FORM)
        kept = kept & some[None, :]
        begin = tl.load(batch.positions + first)
        held = load_state(state, sequence, begin, place, kept)
        decay, skip = tl.load(scan.decay + head), tl.load(scan.skip + head)
        later = row[:, None] >= row[None, :]  # [i, j]: i sees j
        offset = begin % BLOCK_TOKENS
        end = first + count
        for start in tl.range(first - offset, end, BLOCK_TOKENS, num_stages=FORM.stages):
            token = (start + row).to(tl.int64)
            inside = (token >= first) & (token < end)
            wide = inside[:, None] & some[None, :]
            x = tl.load(scan.x + token[:, None] * CHANNELS + channel[None, :], mask=wide, other=0.0)
            step = tl.load(scan.step + token * FORM.heads + head, mask=inside, other=0.0)
            places = (token * FORM.groups + group)[:, None] * FORM.states + at[None, :]
            both = inside[:, None] & real[None, :]
            coming = tl.load(scan.b + places, mask=both, other=0.0)
            seen = tl.load(scan.c + places, mask=both, other=0.0)
            logs = step * decay
            sums, total = tl.cumsum(logs, axis=0), tl.sum(logs, axis=0)
            shares = tl.dot(seen, tl.trans(coming), input_precision=FORM.precision)
            left = tl.exp(tl.where(later, sums[:, None] - sums[None, :], 0.0))
            shares = tl.where(later, shares * left * step[None, :], 0.0)
            seen *= tl.exp(sums)[:, None]
            out = tl.dot(seen, held, input_precision=FORM.precision)
            out = tl.dot(shares, x, out, input_precision=FORM.precision) + skip * x
            tl.store(scan.out + token[:, None] * CHANNELS + channel[None, :], out, mask=wide)
            coming *= (tl.exp(total - sums) * step)[:, None]
            held = tl.dot(tl.trans(coming), x, held * tl.exp(total), input_precision=FORM.precision)
            ended = tl.minimum(start + BLOCK_TOKENS, end)
            position = begin + ended - 1 - first
            store_state(state, sequence, position, held, place, kept)


@triton.jit
def _after_both(kept, added, later_kept, later_added):
    """What two steps do to an element one after the other: it is multiplied, and then added to."""
    return kept * later_kept, added * later_kept + later_added


@triton.jit(do_not_specialize=["numbers"])
def scan_elements_kernel(scan, state, batch, numbers, FORM: tl.constexpr):
    """Some channels of one group a program, chunk by chunk."""
    BLOCKS: tl.constexpr = (FORM.group_channels + FORM.block - 1) // FORM.block
    CHANNELS: tl.constexpr = FORM.groups * FORM.group_channels
    group = tl.program_id(0) // BLOCKS
    inner = tl.program_id(0) % BLOCKS * FORM.block + tl.arange(0, FORM.block)
    sequence, first, count = tokens_of(tl.program_id(1), numbers, batch, PROMPT)
    if count > 0:
        row = tl.arange(0, BLOCK_TOKENS)
        at = tl.arange(0, FORM.state_room)
        some, real = inner < FORM.group_channels, at < FORM.states
        channel = group * FORM.group_channels + inner
        head = channel // FORM.head_size
        place, kept = _place(group, inner, FORM)
        begin = tl.load(batch.positions + first)
        held = load_state(state, sequence, begin, place, kept)
        skip = tl.load(scan.skip + head, mask=some, other=0.0)
        own = (head * FORM.states)[None, :] + at[:, None]
        decay = tl.load(scan.decay + own, mask=real[:, None] & some[None, :], other=0.0)
        offset = begin % BLOCK_TOKENS
        end = first + count
        for start in tl.range(first - offset, end, BLOCK_TOKENS, num_stages=1):
            token = (start + row).to(tl.int64)
            inside = (token >= first) & (token < end)
            wide = inside[:, None] & some[None, :]
            x = tl.load(scan.x + token[:, None] * CHANNELS + channel[None, :], mask=wide, other=0.0)
            steps = scan.step + token[:, None] * FORM.heads + head[None, :]
            step = tl.load(steps, mask=wide, other=0.0)
            places = (token * FORM.groups + group)[:, None] * FORM.states + at[None, :]
            both = inside[:, None] & real[None, :]
            coming = tl.load(scan.b + places, mask=both, other=0.0)
            seen = tl.load(scan.c + places, mask=both, other=0.0)
            left = tl.exp(step[:, None, :] * decay[None, :, :])  # [tokens, states, channels]
            added = coming[:, :, None] * (step * x)[:, None, :]
            left, added = tl.associative_scan((left, added), 0, _after_both)
            states = left * held[None, :, :] + added
            out = tl.sum(states * seen[:, :, None], axis=1) + skip[None, :] * x
            tl.store(scan.out + token[:, None] * CHANNELS + channel[None, :], out, mask=wide)
            newest = (row == BLOCK_TOKENS - 1)[:, None, None]
            held = tl.sum(tl.where(newest, states, 0.0), axis=0)
            ended = tl.minimum(start + BLOCK_TOKENS, end)
            store_state(state, sequence, begin + ended - 1 - first, held, place, kept)
