"""Operations on rows as their definitions, on NumPy matrices [tokens, width].

They work in the precision of their inputs.
"""

import math

import numpy as np

from ingot.backends.reference.step import Matrix, Step, compute
from ingot.errors import ModelError
from ingot.graph import ops as o
from ingot.graph.ops import Activation, NormKind

_erf = np.vectorize(math.erf, otypes=[np.float64])


def norm(
    x: Matrix,
    kind: NormKind,
    epsilon: float,
    weight: Matrix | None = None,
    bias: Matrix | None = None,
    run: int | None = None,
) -> Matrix:
    """Normalize runs of the length of the weight's rows, or of `run`, or whole rows."""
    length = (run or x.shape[1]) if weight is None else weight.shape[-1]
    runs: Matrix = x.reshape(len(x), -1, length)
    if kind is NormKind.LAYER:
        runs = runs - runs.mean(axis=-1, keepdims=True)
    runs = runs / np.sqrt((runs * runs).mean(axis=-1, keepdims=True) + x.dtype.type(epsilon))
    if weight is not None:
        runs = runs * weight
    if bias is not None:
        runs = runs + bias
    return runs.reshape(x.shape)


def softmax(scores: Matrix) -> Matrix:
    """Along the last axis."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares: Matrix = powers / powers.sum(axis=-1, keepdims=True)
    return shares


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
        case Activation.TANH:
            out = np.tanh(gate)
        case Activation.SOFTPLUS:
            out = np.logaddexp(gate, gate.dtype.type(0))
        case Activation.SIGMOID:
            out = sigmoid(gate)
        case Activation.RELU:
            out = np.maximum(gate, 0)
        case Activation.IDENTITY:
            out = gate
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


@compute.register
def _(op: o.Embed, step: Step) -> Matrix:
    rows: Matrix = step.weight(op.weight)[step.ids]
    low = step.adapter and step.adapter.of_table(op.weight)
    if low:
        rows = rows + step.low_rank(low, step.floats(low.down)[step.ids])
    rows = rows * step.dtype(op.scale)
    positions, types = step.optional(op.positions), step.optional(op.types)
    if positions is not None:
        rows = rows + positions[step.positions]
    return rows if types is None else rows + types[step.types]


@compute.register
def _(op: o.TakeRows, step: Step) -> Matrix:
    if step.rows is None or step.rows.shape != (len(step.ids), op.out.width):
        raise ModelError(f"the graph begins with {len(step.ids)} rows of {op.out.width}")
    return step.rows.astype(step.dtype)


@compute.register
def _(op: o.Norm, step: Step) -> Matrix:
    weights = step.optional(op.weight), step.optional(op.bias)
    return norm(step.value(op.source), op.kind, op.epsilon, *weights, run=op.run)


@compute.register
def _(op: o.Activate, step: Step) -> Matrix:
    return activate(op.kind, step.value(op.gate), step.value(op.up) if op.up else None)


@compute.register
def _(op: o.Xielu, step: Step) -> Matrix:
    x = step.value(op.source)
    high, low = np.maximum(x, 0), np.minimum(x, 0)
    rise, fall, slope = (step.dtype(number) for number in (op.rise, op.fall, op.slope))
    out: Matrix = slope * x + rise * high * high + fall * (np.expm1(low) - low)
    return out


@compute.register
def _(op: o.Add, step: Step) -> Matrix:
    return step.value(op.left) + step.value(op.right)


@compute.register
def _(op: o.Scale, step: Step) -> Matrix:
    scaled = step.value(op.source) * step.dtype(op.factor)
    return scaled if op.weight is None else scaled * step.weight(op.weight)


@compute.register
def _(op: o.KeepPeaks, step: Step) -> Matrix:
    x = step.value(op.source)
    least = x.mean(axis=-1, keepdims=True) + op.deviations * x.std(axis=-1, keepdims=True)
    peaks: Matrix = np.maximum(x - least.astype(step.dtype), 0)
    return peaks


@compute.register
def _(op: o.GateRows, step: Step) -> Matrix:
    gate = step.value(op.gate)
    return (sigmoid(gate) if op.sigmoid else gate) * step.value(op.source)


@compute.register
def _(op: o.Select, step: Step) -> Matrix:
    source = step.value(op.source)
    return source if step.outputs is None else source[step.outputs]


@compute.register
def _(op: o.SoftCap, step: Step) -> Matrix:
    return softcap(step.value(op.source), op.cap)
