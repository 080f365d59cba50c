"""Each operation of `ingot.graph.ops` as its definition, on NumPy matrices [tokens, width].

Works in the precision of its inputs.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.graph.ops import Activation, Attend, NormKind, Rope, RopeLayout

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
    return out if up is None else out * up


def softcap(x: Matrix, cap: float) -> Matrix:
    """cap * tanh(x / cap)."""
    return np.tanh(x / x.dtype.type(cap)) * x.dtype.type(cap)
