"""Cut a graph between two layers, so that two backends can run a part each.

A graph comes in, two go out: the first ends with a row for every token, the second begins with
those rows (`TakeRows`) and has the wanted tokens, the last norm and the output. Only the residual
stream may cross. Layers are told apart by the names that files give their tensors: `blk.0.`,
`blk.1.`, ... Which backend runs which part is decided elsewhere.
"""

import re
from dataclasses import dataclass, replace

from ingot.errors import GraphError
from ingot.graph import ops as o
from ingot.graph.graph import ComputationGraph

_LAYER = re.compile(r"blk\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class Cut:
    """The two parts of a graph."""

    first: ComputationGraph  # what comes out are hidden rows
    second: ComputationGraph


def layer_count(graph: ComputationGraph) -> int:
    """How many layers a graph has."""
    return 1 + max((_layer_of(op) for op in graph.ops), default=-1)


def cut(graph: ComputationGraph, layers: int) -> Cut:
    """The first so many layers, with the embedding, and all that follows them."""
    if not 0 < layers < layer_count(graph):
        raise GraphError(f"{layers} of {layer_count(graph)} layers: both parts must have some")
    at = next(index for index, op in enumerate(graph.ops) if _layer_of(op) == layers)
    before, behind = graph.ops[:at], graph.ops[at:]
    written = {value for op in before for value in op.outputs}
    crossing = dict.fromkeys(value for op in behind for value in op.inputs if value in written)
    if len(crossing) != 1:
        names = ", ".join(value.name for value in crossing)
        raise GraphError(f"more than one value crosses the cut behind layer {layers - 1}: {names}")
    stream = next(iter(crossing))
    handed = o.Value("handed_over", stream.width)
    stored = sum(isinstance(op, o.WriteKv) for op in before)
    states = sum(isinstance(op, o.CausalConv | o.StateScan) for op in before)
    return Cut(
        replace(
            graph,
            ops=(*before, o.Select(source=stream, out=handed)),
            logits=handed,
            kv_layers=graph.kv_layers[:stored],
            hidden=True,
            scores=False,
        ),
        replace(
            graph,
            ops=(o.TakeRows(out=stream), *(_renumbered(op, stored, states) for op in behind)),
            kv_layers=graph.kv_layers[stored:],
        ),
    )


def _layer_of(op: o.Op) -> int:
    """The layer that an operation belongs to; -1 before and behind them."""
    found = _LAYER.match((*op.outputs, *op.inputs)[0].name)
    return int(found[1]) if found else -1


def _renumbered(op: o.Op, stored: int, states: int) -> o.Op:
    """The same with layers of the cache, and states, counted from the cut on."""
    match op:
        case o.WriteKv() | o.Attend():
            return replace(op, layer=op.layer - stored)
        case o.CausalConv() | o.StateScan():
            return replace(op, state=op.state - states)
        case _:
            return op
