"""What makes a graph well formed: order, shapes, and which tokens a value has rows for.

Operations and the layers of the cache come in; nothing goes out, or a `GraphError` that names
the operation and the numbers. Backends trust a graph that was made.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ingot.errors import GraphError
from ingot.graph import ops as o


@dataclass(frozen=True, slots=True)
class KvLayer:
    """What one layer keeps per token: a key and a value per head, and for how long."""

    heads: int
    head_size: int
    window: int  # positions that stay visible; 0: all of them

    @property
    def width(self) -> int:
        """Elements of all its keys, or of all its values."""
        return self.heads * self.head_size


def check(ops: Sequence[o.Op], logits: o.Value, layers: Sequence[KvLayer]) -> None:
    """Raise the first thing that is wrong with a graph."""
    selected: dict[str, bool] = {}  # values written so far: rows only for the wanted tokens?
    stored: set[int] = set()
    for op in ops:
        for value in op.inputs:
            if value.name not in selected:
                raise GraphError(f"{_name(op)} reads {value.name} before it is written")
        if len({selected[value.name] for value in op.inputs}) > 1:
            raise GraphError(f"{_name(op)} mixes all tokens with the selected ones")
        after = any(selected[value.name] for value in op.inputs)
        if after and isinstance(op, o.Select | o.WriteKv | o.Attend):
            raise GraphError(f"{_name(op)} needs all tokens and gets the selected ones")
        for value in op.outputs:
            if value.name in selected:
                raise GraphError(f"{_name(op)} writes {value.name} a second time")
            selected[value.name] = after or isinstance(op, o.Select)
        if isinstance(op, o.WriteKv | o.Attend):
            _check_layer(op, layers, stored)
        inside = all(weight.rows.stop <= weight.tensor_shape[0] for weight in op.weights)
        if not inside or not _fits(op):
            widths = ", ".join(f"{v.name} {v.width}" for v in (*op.inputs, *op.outputs))
            shapes = ", ".join(f"{w.name} {w.shape}" for w in op.weights)
            raise GraphError(f"{_name(op)}: sizes do not fit ({'; '.join((widths, shapes))})")
    if not selected.get(logits.name):
        raise GraphError(f"no operation writes the logits ({logits.name}) behind a Select")


def _name(op: o.Op) -> str:
    """The operation and the first value it writes, or else reads."""
    return f"{type(op).__name__} of {(*op.outputs, *op.inputs)[0].name}"


def _check_layer(op: o.WriteKv | o.Attend, layers: Sequence[KvLayer], stored: set[int]) -> None:
    if not 0 <= op.layer < len(layers):
        raise GraphError(f"{_name(op)}: there is no cache for layer {op.layer}")
    layer = layers[op.layer]
    if isinstance(op, o.WriteKv):
        if op.layer in stored:
            raise GraphError(f"{_name(op)}: layer {op.layer} is stored a second time")
        if op.key.width != layer.width or op.value.width != layer.width:
            raise GraphError(f"{_name(op)}: layer {op.layer} keeps {layer.width} elements")
        stored.add(op.layer)
        return
    if op.layer not in stored:
        raise GraphError(f"{_name(op)}: layer {op.layer} is read before it is stored")
    kept = layer.heads, op.heads * layer.head_size, layer.window
    if (op.kv_heads, op.query.width, op.window) != kept:
        raise GraphError(
            f"{_name(op)}: {op.heads} heads over {op.kv_heads}, width {op.query.width}, window "
            f"{op.window} do not fit layer {op.layer}, which keeps {layer.heads} heads of "
            f"{layer.head_size}, window {layer.window}"
        )


def _fits(op: o.Op) -> bool:
    """Whether widths, shapes and constants of one operation agree."""
    match op:
        case o.Embed():
            shapes = [weight.shape for weight in op.weights]
            one = op.type is None or op.type.shape[0] == 1
            return one and all(len(shape) == 2 and shape[1] == op.out.width for shape in shapes)
        case o.Norm():
            *heads, run = op.weight.shape
            if heads:  # a row for each run
                whole = len(heads) == 1 and op.source.width == heads[0] * run
            else:
                whole = op.source.width % run == 0
            bias_fits = op.bias is None or op.bias.shape == op.weight.shape
            return whole and bias_fits and _same_width(op)
        case o.Linear():
            shape = (op.out.width, op.source.width)
            return op.weight.shape == shape and (op.bias is None or op.bias.shape == shape[:1])
        case o.Rope():
            turned = 2 * len(op.frequencies)
            return _same_width(op) and turned <= op.head_size and not op.source.width % op.head_size
        case o.Attend():
            grouped = op.kv_heads > 0 and op.heads % op.kv_heads == 0
            sinks_fit = op.sinks is None or op.sinks.shape == (op.heads,)
            seen = op.causal or not op.window
            return grouped and sinks_fit and seen and _same_width(op)
        case o.SoftCap():
            return _same_width(op) and op.cap > 0
        case o.Route() | o.ExpertLinear() | o.MixExperts() | o.GateRows():
            return _experts_fit(op)
        case _:
            return _same_width(op)


def _same_width(op: o.Op) -> bool:
    return len({value.width for value in (*op.inputs, *op.outputs)}) == 1


def _experts_fit(op: o.Route | o.ExpertLinear | o.MixExperts | o.GateRows) -> bool:
    match op:
        case o.Route():
            bias = op.selection_bias
            chosen = 1 <= op.used <= op.scores.width and op.out.width == 2 * op.used
            return chosen and (bias is None or bias.shape == (op.scores.width,))
        case o.MixExperts():
            return op.source.width * 2 == op.choice.width * op.out.width
        case o.GateRows():
            return op.gate.width == 1 and op.source.width == op.out.width
        case o.ExpertLinear():
            if len(op.weight.shape) != 3:
                return False
            experts, rows, columns = op.weight.shape
            used = op.choice.width // 2
            bias_fits = op.bias is None or op.bias.shape == (experts, rows)
            inputs = {columns, used * columns}  # one for all, or one for each
            return bias_fits and op.out.width == used * rows and op.source.width in inputs
