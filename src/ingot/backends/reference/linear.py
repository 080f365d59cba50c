"""Linear maps as their definition."""

from ingot.backends.reference.step import Matrix, Step, compute
from ingot.graph import ops as o


def linear(x: Matrix, scale: float, weight: Matrix, bias: Matrix | None = None) -> Matrix:
    """scale * (x @ weight.T + bias)."""
    out: Matrix = x @ weight.T
    return (out if bias is None else out + bias) * x.dtype.type(scale)


@compute.register
def _(op: o.Linear, step: Step) -> Matrix:
    weights = step.weight(op.weight), step.optional(op.bias)
    return linear(step.value(op.source), op.scale, *weights)
