"""Mixture of experts as its definition: router, linear maps, sum."""

import numpy as np
from numpy.typing import NDArray

from ingot.backends.reference.rows import sigmoid, softmax
from ingot.backends.reference.step import Matrix, Step, compute
from ingot.graph import ops as o
from ingot.graph.ops import Gating, Route


def route(
    scores: Matrix,
    op: Route,
    selection_bias: Matrix | None = None,
    expert_scales: Matrix | None = None,
) -> Matrix:
    """The chosen experts of every token, best first, then their weights."""
    if op.gating is Gating.SPARSE_MIXER:
        chosen, weights = _sparse_mixer(scores, op)
    else:
        shares = {Gating.SOFTMAX: softmax, Gating.SIGMOID: sigmoid}.get(op.gating, np.array)(scores)
        rank = shares if selection_bias is None else shares + selection_bias
        if op.groups > 1:
            rank = np.where(_in_best_groups(rank, op), rank, -np.inf)
        chosen = np.argsort(-rank, axis=-1, kind="stable")[:, : op.used]
        weights = np.take_along_axis(shares, chosen, axis=-1)
        if op.gating is Gating.CHOSEN_SOFTMAX:
            weights = softmax(weights)
    if op.normalize:
        weights = weights / weights.sum(axis=-1, keepdims=True)
    if expert_scales is not None:
        weights = weights * expert_scales[chosen]
    return np.concatenate([chosen.astype(scores.dtype), weights * scores.dtype.type(op.scale)], 1)


def _in_best_groups(rank: Matrix, op: Route) -> NDArray[np.bool_]:
    """Whether each expert belongs to one of the groups that are used."""
    grouped = np.sort(rank.reshape(len(rank), op.groups, -1), axis=-1)
    worth = grouped[..., -op.group_best :].sum(axis=-1)
    best = np.argsort(-worth, axis=-1, kind="stable")[:, : op.groups_used]
    used = np.zeros(worth.shape, bool)
    np.put_along_axis(used, best, True, axis=-1)
    return used.repeat(grouped.shape[-1], axis=-1)


def _sparse_mixer(scores: Matrix, op: Route) -> tuple[NDArray[np.intp], Matrix]:
    left = scores.copy()
    chosen, weights = [], []
    for _ in range(op.used):
        best = left.argmax(axis=-1)[:, None]
        largest = np.take_along_axis(left, best, axis=-1)
        far = largest - scores > op.near * np.maximum(np.abs(scores), largest)
        shares = softmax(np.where(far, -np.inf, left))
        weights.append(np.take_along_axis(shares, best, axis=-1))
        chosen.append(best)
        np.put_along_axis(left, best, -np.inf, axis=-1)
    return np.concatenate(chosen, axis=1), np.concatenate(weights, axis=1)


def expert_linear(
    x: Matrix,
    choice: Matrix,
    weight: Matrix,
    bias: Matrix | None = None,
    added: Matrix | None = None,
) -> Matrix:
    """Every chosen expert's linear map, side by side, with what an adapter adds to its matrix."""
    used = choice.shape[1] // 2
    parts = x.reshape(len(x), -1, weight.shape[2])  # one, or one for each chosen expert
    out = np.empty((len(x), used, weight.shape[1]), x.dtype)
    for token, numbers in enumerate(choice[:, :used].astype(np.intp)):
        for place, expert in enumerate(numbers):
            own = parts[token, min(place, parts.shape[1] - 1)]
            out[token, place] = weight[expert] @ own
            if added is not None:
                out[token, place] += added[expert] @ own
            if bias is not None:
                out[token, place] += bias[expert]
    return out.reshape(len(x), -1)


def mix_experts(x: Matrix, choice: Matrix) -> Matrix:
    """The parts of the chosen experts, summed by their weights."""
    used = choice.shape[1] // 2
    mixed: Matrix = (x.reshape(len(x), used, -1) * choice[:, used:, None]).sum(axis=1)
    return mixed


@compute.register
def _(op: o.Route, step: Step) -> Matrix:
    vectors = step.optional(op.selection_bias), step.optional(op.expert_scales)
    return route(step.value(op.scores), op, *vectors)


@compute.register
def _(op: o.ExpertLinear, step: Step) -> Matrix:
    weight, bias = step.weight(op.weight)[:, op.part.read], step.optional(op.bias)
    own = None if bias is None else bias[:, op.part.read]
    low = step.adapter and step.adapter.of_experts(op.part)
    added = None
    if low:
        down, up = (
            step.floats(side).reshape(low.experts, -1, side.columns) for side in (low.down, low.up)
        )
        added = (up @ down) * step.dtype(low.scale * step.adapter_scale)
    return expert_linear(step.value(op.source), step.value(op.choice), weight, own, added)


@compute.register
def _(op: o.MixExperts, step: Step) -> Matrix:
    return mix_experts(step.value(op.source), step.value(op.choice))
