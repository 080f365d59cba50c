"""Each operation of `ingot.graph.ops` as its definition, on NumPy matrices [tokens, width].

Works in the precision of its inputs.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.graph.ops import Activation, Attend, Gating, NormKind, Rope, RopeLayout, Route

Matrix = NDArray[np.floating[Any]]

_erf = np.vectorize(math.erf, otypes=[np.float64])


def norm(
    x: Matrix, kind: NormKind, epsilon: float, weight: Matrix, bias: Matrix | None = None
) -> Matrix:
    """Normalize runs of the length of the weight's rows."""
    runs: Matrix = x.reshape(len(x), -1, weight.shape[-1])
    if kind is NormKind.LAYER:
        runs = runs - runs.mean(axis=-1, keepdims=True)
    runs = runs / np.sqrt((runs * runs).mean(axis=-1, keepdims=True) + x.dtype.type(epsilon))
    runs = runs * weight
    if bias is not None:
        runs = runs + bias
    return runs.reshape(x.shape)


def linear(x: Matrix, scale: float, weight: Matrix, bias: Matrix | None = None) -> Matrix:
    """scale * (x @ weight.T + bias)."""
    out: Matrix = x @ weight.T
    return (out if bias is None else out + bias) * x.dtype.type(scale)


def rope(x: Matrix, positions: Matrix, op: Rope) -> Matrix:
    """Turn pairs of elements of every head."""
    angles = np.outer(positions, op.frequencies)[:, None, :]  # [tokens, 1, pairs], float64
    cos = (np.cos(angles) * op.magnitude).astype(x.dtype)
    sin = (np.sin(angles) * op.magnitude).astype(x.dtype)
    out = x.reshape(len(x), -1, op.head_size).copy()
    pairs = len(op.frequencies)
    if op.layout is RopeLayout.ADJACENT:
        first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    else:
        first, second = slice(0, pairs), slice(pairs, 2 * pairs)
    a, b = out[..., first].copy(), out[..., second].copy()
    out[..., first] = a * cos - b * sin
    out[..., second] = a * sin + b * cos
    return out.reshape(x.shape)


def softmax(scores: Matrix) -> Matrix:
    """Along the last axis."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares: Matrix = powers / powers.sum(axis=-1, keepdims=True)
    return shares


def attend(
    query: Matrix,
    keys: Matrix,
    values: Matrix,
    positions: Matrix,
    op: Attend,
    sinks: Matrix | None = None,
) -> Matrix:
    """Attention over the cache [positions, kv width]."""
    tokens, size = len(query), query.shape[1] // op.heads
    repeat = op.heads // op.kv_heads
    q = query.reshape(tokens, op.heads, size).transpose(1, 0, 2)
    k = keys.reshape(len(keys), op.kv_heads, -1).transpose(1, 0, 2).repeat(repeat, axis=0)
    v = values.reshape(len(values), op.kv_heads, -1).transpose(1, 0, 2).repeat(repeat, axis=0)
    scores: Matrix = q @ k.transpose(0, 2, 1)  # [heads, tokens, positions]
    scores = scores * query.dtype.type(op.scale)
    if op.softcap:
        scores = softcap(scores, op.softcap)
    distance = positions[:, None] - np.arange(len(keys))[None, :]
    hidden = distance < 0 if op.causal else np.zeros(distance.shape, bool)
    if op.window:
        hidden |= distance >= op.window
    scores[:, hidden] = -np.inf
    if sinks is not None:
        extra = np.broadcast_to(sinks[:, None, None], (op.heads, tokens, 1))
        weights = softmax(np.concatenate([scores, extra], axis=-1))[..., :-1]
    else:
        weights = softmax(scores)
    mixed: Matrix = weights @ v
    return mixed.transpose(1, 0, 2).reshape(tokens, -1)


def activate(kind: Activation, gate: Matrix, up: Matrix | None = None) -> Matrix:
    """activation(gate), times up if there is one."""
    one = gate.dtype.type(1)
    out: Matrix
    match kind:
        case Activation.SILU:
            with np.errstate(over="ignore"):
                out = gate / (one + np.exp(-gate))
        case Activation.GELU:
            out = gate * (one + _erf(gate / math.sqrt(2)).astype(gate.dtype)) / 2
        case Activation.GELU_TANH:
            inner = math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)
            out = gate * (one + np.tanh(inner)) / 2
        case Activation.RELU_SQUARED:
            out = np.maximum(gate, 0) ** 2
        case Activation.CLAMPED_SWIGLU:
            limited = np.minimum(gate, 7)
            out = limited * sigmoid(limited * gate.dtype.type(1.702))
            up = None if up is None else np.clip(up, -7, 7) + one
    return out if up is None else out * up


def softcap(x: Matrix, cap: float) -> Matrix:
    """cap * tanh(x / cap)."""
    return np.tanh(x / x.dtype.type(cap)) * x.dtype.type(cap)


def sigmoid(x: Matrix) -> Matrix:
    """1 / (1 + exp(-x))."""
    with np.errstate(over="ignore"):
        return x.dtype.type(1) / (x.dtype.type(1) + np.exp(-x))


def route(scores: Matrix, op: Route, selection_bias: Matrix | None = None) -> Matrix:
    """The chosen experts of every token, best first, then their weights."""
    if op.gating is Gating.SPARSE_MIXER:
        chosen, weights = _sparse_mixer(scores, op)
    else:
        shares = {Gating.SOFTMAX: softmax, Gating.SIGMOID: sigmoid}.get(op.gating, np.array)(scores)
        rank = shares if selection_bias is None else shares + selection_bias
        chosen = np.argsort(-rank, axis=-1, kind="stable")[:, : op.used]
        weights = np.take_along_axis(shares, chosen, axis=-1)
        if op.gating is Gating.CHOSEN_SOFTMAX:
            weights = softmax(weights)
    if op.normalize:
        weights = weights / weights.sum(axis=-1, keepdims=True)
    return np.concatenate([chosen.astype(scores.dtype), weights * scores.dtype.type(op.scale)], 1)


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


def expert_linear(x: Matrix, choice: Matrix, weight: Matrix, bias: Matrix | None = None) -> Matrix:
    """Every chosen expert's linear map, side by side."""
    used = choice.shape[1] // 2
    parts = x.reshape(len(x), -1, weight.shape[2])  # one, or one for each chosen expert
    out = np.empty((len(x), used, weight.shape[1]), x.dtype)
    for token, numbers in enumerate(choice[:, :used].astype(np.intp)):
        for place, expert in enumerate(numbers):
            own = parts[token, min(place, parts.shape[1] - 1)]
            out[token, place] = weight[expert] @ own
            if bias is not None:
                out[token, place] += bias[expert]
    return out.reshape(len(x), -1)


def mix_experts(x: Matrix, choice: Matrix) -> Matrix:
    """The parts of the chosen experts, summed by their weights."""
    used = choice.shape[1] // 2
    mixed: Matrix = (x.reshape(len(x), used, -1) * choice[:, used:, None]).sum(axis=1)
    return mixed
