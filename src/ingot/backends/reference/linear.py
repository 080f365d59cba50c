"""Linear maps as their definition."""

from ingot.backends.reference.step import Matrix, Step, compute
from ingot.graph import ops as o


def linear(
    x: Matrix,
    scale: float,
    weight: Matrix,
    bias: Matrix | None = None,
    added: Matrix | None = None,
) -> Matrix:
    """scale * (x @ weight.T + bias), with what an adapter adds to the product."""
    out: Matrix = x @ weight.reshape(-1, weight.shape[-1]).T
    if added is not None:
        out = out + added
    return (out if bias is None else out + bias) * x.dtype.type(scale)


@compute.register
def _(op: o.Linear, step: Step) -> Matrix:
    x, low = step.value(op.source), step.adapter and step.adapter.of_matrix(op.weight)
    added = step.low_rank(low, x @ step.floats(low.down).T) if low else None
    return linear(x, op.scale, step.weight(op.weight), step.optional(op.bias), added)
