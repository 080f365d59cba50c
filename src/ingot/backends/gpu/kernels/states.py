"""What operations with states share: which tokens a program takes, and where a state lies.

States lie in blocks of a group of the cache: the block of a run of 32 positions holds the state
after the last of them that was computed. A program takes all tokens of a sequence in a step. It
reads the state before the first, writes that after the last, and those at the ends of the runs that
it passes and that have a block.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ingot.backends.gpu.kernels.kv_cache import BLOCK_TOKENS

PROMPT = tl.constexpr(0)  # tiles of tokens, in order
SINGLE = tl.constexpr(1)  # one token of each sequence
GUESSED = tl.constexpr(2)  # some tokens of each sequence
LANES = tl.constexpr(16)  # channels whose states lie side by side
_BLOCK = tl.constexpr(64)  # tiles or tokens that are looked at together


class StateView(NamedTuple):
    """An operation's part of the states, in floats, and the blocks of each sequence."""

    table: torch.Tensor  # int32 [sequences, table_stride]; below 0: no block
    table_stride: int
    pool: torch.Tensor
    block_stride: int
    start: int


class Batch(NamedTuple):
    """The tokens of a step."""

    positions: torch.Tensor
    sequences: torch.Tensor
    tiles: torch.Tensor  # of a prompt: sequence, first token, tokens, length


@triton.jit
def tokens_of(number, numbers, batch, MODE: tl.constexpr):
    """The sequence of a tile or token, its first token, and how many it has.

    None if the tile or token is not the first of its sequence, so that one program works for it.
    """
    if MODE == PROMPT:
        sequence = tl.load(batch.tiles + 4 * number)
        first = tl.load(batch.tiles + 4 * number + 1)
        real = tl.load(batch.tiles + 4 * number + 2) > 0
        before = tl.load(batch.tiles + 4 * tl.maximum(number - 1, 0))
    else:
        sequence = tl.load(batch.sequences + number)
        first = number + sequence * 0
        real = tl.load(batch.positions + number) >= 0
        before = tl.load(batch.sequences + tl.maximum(number - 1, 0))
    count = sequence * 0
    if MODE == SINGLE:
        count = tl.where(real, 1, 0)
    elif real & ((number == 0) | (before != sequence)):
        for base in range(0, numbers, _BLOCK):
            at = base + tl.arange(0, _BLOCK)
            inside = at < numbers
            if MODE == PROMPT:
                other = tl.load(batch.tiles + 4 * at, mask=inside, other=-1)
                size = tl.load(batch.tiles + 4 * at + 2, mask=inside, other=0)
            else:
                other = tl.load(batch.sequences + at, mask=inside, other=-1)
                position = tl.load(batch.positions + at, mask=inside, other=-1)
                size = tl.where(position >= 0, 1, 0)
            count += tl.sum(tl.where(other == sequence, size, 0), axis=0)
    return sequence, first, count


@triton.jit
def state_at(state, sequence, run):
    """The block of a run of positions, and where its state begins."""
    block = tl.load(state.table + sequence * state.table_stride + run)
    return block, block.to(tl.int64) * state.block_stride + state.start


@triton.jit
def load_state(state, sequence, begin, place, kept):
    """A part of the state before position `begin`; 0 at the beginning of a text."""
    run = tl.maximum(begin - 1, 0) // BLOCK_TOKENS
    _, start = state_at(state, sequence, run)
    return tl.load(state.pool + start + place, mask=kept & (begin > 0), other=0.0)


@triton.jit
def store_state(state, sequence, position, value, place, kept):
    """A part of the state after a position, if there is a block for it."""
    block, start = state_at(state, sequence, position // BLOCK_TOKENS)
    tl.store(state.pool + start + place, value, mask=kept & (block >= 0))
