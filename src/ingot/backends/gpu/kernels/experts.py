"""Experts: pick those of every token, bring together the tokens of every expert, multiply and mix.

A token and one of the experts it uses are a pair; pair p is the p % used-th choice of token
p // used. A choice is stored as floats: numbers of the experts, then their weights. The matrices of
all experts lie below each other. A program of `expert_kernel` takes some rows of one expert and a
tile of its pairs; for a single token (SINGLE) every pair is a tile. Only experts that were chosen
are read. With WHOLE, for many pairs, products and what follows them are those of `linear_wide.py`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ingot.backends.gpu.kernels.codes import code
from ingot.backends.gpu.kernels.epilogue import finish, paired_rows, to_half
from ingot.backends.gpu.kernels.order import start_next, wait_for_last
from ingot.backends.gpu.kernels.products import products
from ingot.backends.gpu.kernels.weights import ROWS
from ingot.graph.ops import Gating

SOFTMAX = tl.constexpr(code(Gating.SOFTMAX))
SIGMOID = tl.constexpr(code(Gating.SIGMOID))
CHOSEN_SOFTMAX = tl.constexpr(code(Gating.CHOSEN_SOFTMAX))
SPARSE_MIXER = tl.constexpr(code(Gating.SPARSE_MIXER))
_NEVER = tl.constexpr(float("-inf"))
_LOWEST = tl.constexpr(-(1 << 31))


class Groups(NamedTuple):
    """The pairs of a step, expert by expert: memory that layers share, one after the other."""

    counts: torch.Tensor  # int32 [experts]: pairs of each; all 0 between layers
    ranks: torch.Tensor  # int32 [pairs]: which of its expert's pairs it is; -1: of no token
    pairs: torch.Tensor  # int32 [pairs]: sorted
    tiles: torch.Tensor  # int32 [3, most]: expert, first of the sorted pairs, number of them
    tile_count: torch.Tensor  # int32 [1]


class NextNorm(NamedTuple):
    """The RMS norm of the mix that the next layer reads, if it is computed here."""

    weight: torch.Tensor | None
    epsilon: float
    out: torch.Tensor  # halves, rows of `stride`, zeros after the width
    stride: int


@dataclass(frozen=True, slots=True)
class Router:
    """What a kernel is compiled for."""

    experts: int  # filled up to a power of two
    used: int
    slots: int  # the same, filled up
    gating: int
    normalize: bool
    groups: int = 1  # of equal size; only experts of the best `groups_used` are chosen
    groups_used: int = 1
    group_best: int = 1  # ranks that a group counts for
    group_slots: int = 1  # groups, filled up
    group_room: int = 1  # experts of a group, filled up


@triton.jit
def route_kernel(
    scores,
    bias,
    expert_scales,
    choice,  # out
    positions,
    groups,
    experts,
    scale,
    near,
    ROUTER: tl.constexpr,
    COUNTED: tl.constexpr,
    SELECTED: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """One token a program."""
    wait_for_last(AHEAD)
    start_next(AHEAD)
    USED: tl.constexpr = ROUTER.used
    SLOTS: tl.constexpr = ROUTER.slots
    GATING: tl.constexpr = ROUTER.gating
    token = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, ROUTER.experts)
    real = at < experts
    score = tl.load(scores + token * experts + at, mask=real, other=_NEVER)
    largest, total = score, score
    if GATING == SOFTMAX:
        largest = tl.max(score, axis=0)
        total = tl.sum(tl.exp(score - largest), axis=0)
    share = _share(score, largest, total, GATING)
    rank = _rank(share, bias, at, real)
    if ROUTER.groups > 1:
        GROUPS: tl.constexpr = ROUTER.group_slots
        GROUP_BEST: tl.constexpr = ROUTER.group_best
        GROUPS_USED: tl.constexpr = ROUTER.groups_used
        size = experts // ROUTER.groups
        group = tl.arange(0, GROUPS)
        inner = tl.arange(0, ROUTER.group_room)
        place = group[:, None] * size + inner[None, :]
        grouped = (group < ROUTER.groups)[:, None] & (inner < size)[None, :]
        ranks = tl.load(scores + token * experts + place, mask=grouped, other=_NEVER)
        ranks = _rank(_share(ranks, largest, total, GATING), bias, place, grouped)
        worth = tl.zeros((GROUPS,), tl.float32)
        for _ in tl.static_range(GROUP_BEST):
            worth += tl.max(ranks, axis=1)
            ranks = tl.where(inner[None, :] == tl.argmax(ranks, axis=1)[:, None], _NEVER, ranks)
        allowed = at < 0
        for _ in tl.static_range(GROUPS_USED):
            best_group = tl.argmax(worth, axis=0)
            allowed |= at // size == best_group
            worth = tl.where(group == best_group, _NEVER, worth)
        rank = tl.where(allowed, rank, _NEVER)
    slot = tl.arange(0, SLOTS)
    used = slot < USED
    chosen = tl.zeros((SLOTS,), tl.int32)
    weight = tl.zeros((SLOTS,), tl.float32)
    order = tl.where(real, _ordered(rank), _LOWEST)
    for number in tl.static_range(USED):
        first = tl.max(order, axis=0)
        best = tl.min(tl.where(order == first, at, ROUTER.experts), axis=0)
        chosen = tl.where(slot == number, best, chosen)
        if GATING == SPARSE_MIXER:
            largest = tl.max(rank, axis=0)
            size = tl.maximum(tl.abs(score), largest)
            rival = (rank > _NEVER) & (largest - score <= near * size)
            found = 1.0 / tl.sum(tl.where(rival, tl.exp(score - largest), 0.0), axis=0)
            weight = tl.where(slot == number, found, weight)
            rank = tl.where(at == best, _NEVER, rank)
        order = tl.where(at == best, _LOWEST, order)
    if GATING != SPARSE_MIXER:
        picked = tl.load(scores + token * experts + chosen, mask=used, other=0.0)
        weight = _share(picked, largest, total, GATING)
    if GATING == CHOSEN_SOFTMAX:
        largest = tl.max(tl.where(used, weight, _NEVER), axis=0)
        weight = tl.where(used, tl.exp(weight - largest), 0.0)
        weight = weight / tl.sum(weight, axis=0)
    if ROUTER.normalize:
        weight = weight / tl.sum(tl.where(used, weight, 0.0), axis=0)
    if expert_scales is not None:
        weight *= tl.load(expert_scales + chosen, mask=used, other=0.0)
    place = choice + token * (2 * USED) + slot
    tl.store(place, chosen.to(tl.float32), mask=used)
    tl.store(place + USED, weight * scale, mask=used)
    if COUNTED:
        live = used
        if not SELECTED:
            live = used & (tl.load(positions + token) >= 0)
        earlier = tl.atomic_add(groups.counts + chosen, 1, mask=live)
        tl.store(groups.ranks + token * USED + slot, tl.where(live, earlier, -1), mask=used)


@triton.jit
def _share(score, largest, total, GATING: tl.constexpr):
    """What a score counts before experts are chosen."""
    if GATING == SOFTMAX:
        return tl.exp(score - largest) / total
    elif GATING == SIGMOID:
        return 1.0 / (1.0 + tl.exp(-score))
    else:
        return score


@triton.jit
def _rank(share, bias, at, real):
    """What experts are chosen by."""
    if bias is not None:
        share += tl.load(bias + at, mask=real, other=0.0)
    return tl.where(real, share, _NEVER)


@triton.jit
def _ordered(rank):
    """Whole numbers in the order of floats: a warp finds the largest of them in one instruction.

    -0 is 0. NaN has a place in the order, too, so that whatever a row holds names an expert.
    """
    bits = (rank + 0.0).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit(do_not_specialize=["most", "pairs"])
def group_kernel(
    choice,
    groups,
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
    count = tl.load(groups.counts + at, mask=real, other=0)
    start = tl.cumsum(count, axis=0) - count
    if tl.program_id(0) == 0:
        number = (count + COLS - 1) // COLS
        first = tl.cumsum(number, axis=0) - number
        tl.store(groups.tile_count, tl.sum(number, axis=0))
        for index in range(tl.max(number, axis=0)):
            mine = index < number
            place = groups.tiles + first + index
            tl.store(place, at, mask=mine)
            tl.store(place + most, start + index * COLS, mask=mine)
            tl.store(place + 2 * most, tl.minimum(count - index * COLS, COLS), mask=mine)
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = pair < pairs
    rank = tl.load(groups.ranks + pair, mask=inside, other=-1)
    chosen = tl.load(choice + pair // USED * (2 * USED) + pair % USED, mask=inside, other=0.0)
    chosen = chosen.to(tl.int32)
    place = tl.sum(tl.where(chosen[:, None] == at[None, :], start[None, :], 0), axis=1) + rank
    tl.store(groups.pairs + place, pair, mask=inside & (rank >= 0))


@triton.jit(do_not_specialize=["most", "pairs"])
def expert_kernel(
    inputs,
    pairs_of_input,  # that read the same input: 1, or as many as a token uses
    pairs,
    weights,
    choice,
    groups,
    most,
    epilogue,
    TILE: tl.constexpr,
    FORM: tl.constexpr,
    ACTIVATION: tl.constexpr,
    GATED: tl.constexpr,
    SINGLE: tl.constexpr,
    WHOLE: tl.constexpr,
    ASM: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """out[pair] = epilogue(weights of its expert @ x[pair // pairs_of_input])."""
    wait_for_last(AHEAD)
    BLOCK: tl.constexpr = TILE.rows
    COLS: tl.constexpr = TILE.columns
    rows = weights.rows
    number = tl.program_id(1)
    column_of = tl.arange(0, COLS)
    if SINGLE:
        expert = tl.load(choice + number).to(tl.int32)
        live = column_of == 0
        pair = number + column_of
    else:
        if number >= tl.load(groups.tile_count):
            return
        expert = tl.load(groups.tiles + number)
        live = column_of < tl.load(groups.tiles + 2 * most + number)
        first = tl.load(groups.tiles + most + number)
        pair = tl.load(groups.pairs + first + column_of, mask=live, other=0)
    row = paired_rows(tl.program_id(0), BLOCK, GATED and WHOLE)
    inside = tl.minimum(row, rows - 1)  # rows after the last are not stored
    tile = (expert.to(tl.int64) * rows + inside) // ROWS
    sums = products(
        inputs,
        (pair // pairs_of_input).to(tl.int64) * inputs.stride,
        live,
        weights,
        tile,
        row % ROWS,
        0,
        weights.chunks // TILE.unroll,
        TILE,
        FORM,
        ASM,
        WHOLE,
    )
    start_next(AHEAD)
    added = tl.zeros((COLS, BLOCK), tl.float32)
    if epilogue.bias is not None:
        added += tl.load(epilogue.bias + expert * rows + inside)[None, :]
    finish(
        sums,
        added,
        tl.program_id(0) * BLOCK,
        tl.where(live, pair, pairs).to(tl.int64),
        pairs,
        (0, epilogue.widths[0], 0),
        epilogue,
        ACTIVATION,
        GATED,
        PAIRED=WHOLE,
    )


@triton.jit
def mix_kernel(
    parts,  # [pairs, width]
    choice,
    counts,
    residual,
    out,
    norm,
    width,
    experts,
    USED: tl.constexpr,
    EXPERTS: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """out = the parts of a token's experts, each times its weight, added in their order.

    The counts of pairs, which have served their purpose, become 0 for the next layer.
    """
    token = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < width
    if norm.weight is not None:
        gain = tl.load(norm.weight + at, mask=inside, other=0.0)
    wait_for_last(AHEAD)
    start_next(AHEAD)
    value = tl.zeros((BLOCK,), tl.float32)
    if residual is not None:
        value += tl.load(residual + token * width + at, mask=inside, other=0.0)
    for number in tl.static_range(USED):
        weight = tl.load(choice + token * (2 * USED) + USED + number)
        part = tl.load(parts + (token * USED + number) * width + at, mask=inside, other=0.0)
        value += weight * part
    tl.store(out + token * width + at, value, mask=inside)
    if norm.weight is not None:
        value = value / tl.sqrt(tl.sum(value * value) / width + norm.epsilon)
        value *= gain
        place = norm.out + token * norm.stride + at
        tl.store(place, to_half(value), mask=at < norm.stride)
    if token == 0:
        expert = tl.arange(0, EXPERTS)
        tl.store(counts + expert, tl.zeros((EXPERTS,), tl.int32), mask=expert < experts)
