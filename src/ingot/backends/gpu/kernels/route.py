"""Choose the experts of every token, and bring together the tokens of every expert.

A token and one of the experts it uses are a pair; pair p is the p % used-th choice of token
p // used. A choice is stored as floats: numbers of the experts, then their weights.
"""

import triton
import triton.language as tl

from ingot.backends.gpu.kernels.codes import code
from ingot.backends.gpu.kernels.order import start_next, wait_for_last
from ingot.graph.ops import Gating

SOFTMAX = tl.constexpr(code(Gating.SOFTMAX))
SIGMOID = tl.constexpr(code(Gating.SIGMOID))
CHOSEN_SOFTMAX = tl.constexpr(code(Gating.CHOSEN_SOFTMAX))
SPARSE_MIXER = tl.constexpr(code(Gating.SPARSE_MIXER))
_NEVER = tl.constexpr(float("-inf"))


@triton.jit
def route_kernel(
    scores,
    bias,
    out,
    positions,
    counts,  # [experts]: pairs so far
    ranks,  # [pairs]: which of its expert's pairs it is; -1: of no token
    experts,
    scale,
    near,
    EXPERTS: tl.constexpr,
    SLOTS: tl.constexpr,
    USED: tl.constexpr,
    GATING: tl.constexpr,
    NORMALIZE: tl.constexpr,
    BIAS: tl.constexpr,
    COUNTED: tl.constexpr,
    SELECTED: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """One token a program."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    token = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, EXPERTS)
    real = at < experts
    score = tl.load(scores + token * experts + at, mask=real, other=_NEVER)
    share = score
    if GATING == SOFTMAX:
        powers = tl.exp(score - tl.max(score, axis=0))
        share = powers / tl.sum(powers, axis=0)
    elif GATING == SIGMOID:
        share = 1.0 / (1.0 + tl.exp(-score))
    rank = share
    if BIAS:
        rank += tl.load(bias + at, mask=real, other=0.0)
    rank = tl.where(real, rank, _NEVER)
    slot = tl.arange(0, SLOTS)
    chosen = tl.zeros((SLOTS,), tl.int32)
    weight = tl.zeros((SLOTS,), tl.float32)
    for number in tl.static_range(USED):
        best = tl.argmax(rank, axis=0)
        if GATING == SPARSE_MIXER:
            largest = tl.max(rank, axis=0)
            size = tl.maximum(tl.abs(score), largest)
            rival = (rank > _NEVER) & (largest - score <= near * size)
            found = 1.0 / tl.sum(tl.where(rival, tl.exp(score - largest), 0.0), axis=0)
        else:
            found = tl.sum(tl.where(at == best, share, 0.0), axis=0)
        chosen = tl.where(slot == number, best, chosen)
        weight = tl.where(slot == number, found, weight)
        rank = tl.where(at == best, _NEVER, rank)
    used = slot < USED
    if GATING == CHOSEN_SOFTMAX:
        largest = tl.max(tl.where(used, weight, _NEVER), axis=0)
        weight = tl.where(used, tl.exp(weight - largest), 0.0)
        weight = weight / tl.sum(weight, axis=0)
    if NORMALIZE:
        weight = weight / tl.sum(tl.where(used, weight, 0.0), axis=0)
    place = out + token * (2 * USED) + slot
    tl.store(place, chosen.to(tl.float32), mask=used)
    tl.store(place + USED, weight * scale, mask=used)
    if COUNTED:
        live = used
        if not SELECTED:
            live = used & (tl.load(positions + token) >= 0)
        order = tl.atomic_add(counts + chosen, 1, mask=live)
        tl.store(ranks + token * USED + slot, tl.where(live, order, -1), mask=used)


@triton.jit
def group_kernel(
    choice,
    counts,
    ranks,
    sorted_pairs,  # out: pairs, expert by expert
    tiles,  # out: expert, first of the sorted pairs, number of them; three rows of `most`
    tile_count,  # out
    most,
    pairs,
    experts,
    EXPERTS: tl.constexpr,
    USED: tl.constexpr,
    COLS: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """A program puts BLOCK pairs in their places; the first also makes tiles of up to COLS."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    at = tl.arange(0, EXPERTS)
    real = at < experts
    count = tl.load(counts + at, mask=real, other=0)
    start = tl.cumsum(count, axis=0) - count
    if tl.program_id(0) == 0:
        number = (count + COLS - 1) // COLS
        first = tl.cumsum(number, axis=0) - number
        tl.store(tile_count, tl.sum(number, axis=0))
        for index in range(tl.max(number, axis=0)):
            mine = index < number
            place = tiles + first + index
            tl.store(place, at, mask=mine)
            tl.store(place + most, start + index * COLS, mask=mine)
            tl.store(place + 2 * most, tl.minimum(count - index * COLS, COLS), mask=mine)
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = pair < pairs
    rank = tl.load(ranks + pair, mask=inside, other=-1)
    chosen = tl.load(choice + pair // USED * (2 * USED) + pair % USED, mask=inside, other=0.0)
    chosen = chosen.to(tl.int32)
    place = tl.sum(tl.where(chosen[:, None] == at[None, :], start[None, :], 0), axis=1) + rank
    tl.store(sorted_pairs + place, pair, mask=inside & (rank >= 0))
