"""Cut a graph between layers, so that several backends can run a part each.

A graph comes in, two or more go out. Of two, the first ends with a row for every token, the second
begins with those rows (`TakeRows`) and has the wanted tokens, the last norm and the output. Only
the residual stream may cross; what comes before all layers and is wanted later is computed in both
parts. Which backend runs which part is decided elsewhere.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from ingot.errors import GraphError
from ingot.graph import ops as o
from ingot.graph.graph import ComputationGraph


@dataclass(frozen=True, slots=True)
class Cut:
    """The two parts of a graph."""

    first: ComputationGraph  # what comes out are hidden rows
    second: ComputationGraph


def layer_count(graph: ComputationGraph) -> int:
    """How many layers a graph has."""
    return 1 + max((op.layer for op in graph.ops if op.layer is not None), default=-1)


def cut(graph: ComputationGraph, layers: int) -> Cut:
    """The first so many layers, with the embedding, and all that follows them."""
    if not 0 < layers < layer_count(graph):
        raise GraphError(f"{layers} of {layer_count(graph)} layers: both parts must have some")
    at = next(index for index, op in enumerate(graph.ops) if op.layer == layers)
    before, after = graph.ops[:at], graph.ops[at:]
    written = {value: op for op in before for value in op.outputs}
    crossing = list(dict.fromkeys(v for op in after for v in op.inputs if v in written))
    streams = crossing
    if len(crossing) > 1:  # all but the stream are there before the first layer
        streams = [value for value in crossing if written[value].layer is not None]
    if len(streams) != 1:
        names = ", ".join(value.name for value in crossing)
        raise GraphError(f"more than one value crosses the cut after layer {layers - 1}: {names}")
    stream = streams[0]
    again = _makers([value for value in crossing if value != stream], before)
    handed = o.Value("handed_over", stream.width)
    stored = len({number for op in before for number in op.with_role(o.Role.KV_LAYER)})
    states = len({number for op in before for number in op.with_role(o.Role.STATE)})
    if any(number < stored for op in after for number in op.with_role(o.Role.KV_LAYER)):
        raise GraphError(
            f"layers after the first {layers} read keys and values of those: they share them"
        )
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
            ops=(o.TakeRows(out=stream), *again, *(op.renumbered(stored, states) for op in after)),
            kv_layers=graph.kv_layers[stored:],
        ),
    )


def cut_places(graph: ComputationGraph) -> list[int]:
    """After how many layers a graph can be cut, in ascending order."""
    found = []
    for layers in range(1, layer_count(graph)):
        with suppress(GraphError):
            cut(graph, layers)
            found.append(layers)
    return found


def cut_all(graph: ComputationGraph, places: Sequence[int]) -> list[ComputationGraph]:
    """The parts of a graph that is cut after so many layers each, in order."""
    parts = []
    for layers in places:
        halves = cut(graph, layers)
        parts.append(halves.first)
        graph = halves.second
    return [*parts, graph]


def _makers(values: list[o.Value], ops: tuple[o.Op, ...]) -> list[o.Op]:
    """The operations that some values are made with."""
    wanted, found = set(values), list[o.Op]()
    for op in reversed(ops):
        if wanted.intersection(op.outputs):
            found.append(op)
            wanted.update(op.inputs)
    return found[::-1]
