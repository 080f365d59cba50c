"""What makes a graph well formed: order, shapes, and which tokens a value has rows for.

Operations and the layers of the cache come in; nothing goes out, or a `GraphError` that names
the operation and the numbers. What must fit inside an operation is its own `fits` and
`check_cache`. Backends trust a graph that was made.
"""

from collections.abc import Collection, Sequence

from ingot.errors import GraphError
from ingot.graph.ops import KvLayer, Op, Role, Value


def check(
    ops: Sequence[Op], logits: Value, layers: Sequence[KvLayer], encoded: Collection[int] = ()
) -> None:
    """Raise the first thing that is wrong with a graph; an encoder has stored `encoded` layers."""
    selected: dict[str, bool] = {}  # values written so far: rows only for the wanted tokens?
    stored: set[int] = set()
    states = [number for op in ops for number in op.with_role(Role.STATE)]
    if sorted(states) != list(range(len(states))):
        raise GraphError(f"states are not numbered from 0 on, each once: {states}")
    for op in ops:
        for value in op.inputs:
            if value.name not in selected:
                raise GraphError(f"{op} reads {value.name} before it is written")
        if len({selected[value.name] for value in op.inputs}) > 1:
            raise GraphError(f"{op} mixes all tokens with the selected ones")
        after = any(selected[value.name] for value in op.inputs)
        if after and op.needs_all_tokens:
            raise GraphError(f"{op} needs all tokens and gets the selected ones")
        for value in op.outputs:
            if value.name in selected:
                raise GraphError(f"{op} writes {value.name} a second time")
            selected[value.name] = after or op.selects
        op.check_cache(layers, stored, encoded)
        inside = all(weight.rows.stop <= weight.tensor_shape[0] for weight in op.weights)
        if not inside or not op.fits():
            widths = ", ".join(f"{v.name} {v.width}" for v in (*op.inputs, *op.outputs))
            shapes = ", ".join(f"{w.name} {w.shape}" for w in op.weights)
            raise GraphError(f"{op}: sizes do not fit ({'; '.join((widths, shapes))})")
    if not selected.get(logits.name):
        raise GraphError(f"no operation writes the logits ({logits.name}) after a Select")
