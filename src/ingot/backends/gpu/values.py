"""Facts about the values of a graph: where they lie, which are half floats, which rows they have.

Values that only linear layers read, unchanged, are stored the way they are read: as halves. What a
norm brought to size is stored as it is; other values are multiplied by 1/16: 10^6 is then the
largest, and what is lost below 10^-3 does not matter beside it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from ingot.graph import MemoryPlan
from ingot.graph import ops as o
from ingot.graph.fusion import FusedGraph

HALF_SCALE = 0.0625
_FILLED = 256  # columns: rows of weights are filled up to four chunks, at most


@dataclass(frozen=True, slots=True)
class Values:
    """Views of the arena."""

    plan: MemoryPlan
    arena: torch.Tensor  # float32
    tokens: int  # for which there is room
    halves: Mapping[str, float]  # what values that are halves are multiplied by

    def tensor(self, value: o.Value) -> torch.Tensor:
        """A value's memory, as floats or halves [tokens, width], flat."""
        half, count = value.name in self.halves, self.tokens * value.width
        start = self.plan.slots[value.name].offset // 4 * self.tokens
        room = self.arena[start : start + (-(-count // 2) if half else count)]
        return room.view(torch.float16)[:count] if half else room

    def offset(self, value: o.Value) -> int:
        """Where a value begins in the arena, in its own elements."""
        start = self.plan.slots[value.name].offset // 4 * self.tokens
        return 2 * start if value.name in self.halves else start

    def scale(self, value: o.Value) -> float:
        """What a value is multiplied by where it lies."""
        return self.halves.get(value.name, 1.0)

    def rows(self, value: o.Value, tokens: int) -> torch.Tensor:
        """A value of so many tokens, as float32 [tokens, width]."""
        stored = self.tensor(value)[: tokens * value.width].view(tokens, value.width)
        return stored.float() / self.scale(value)


@dataclass(frozen=True, slots=True)
class _Lived:
    """What an operation reads and writes here."""

    inputs: tuple[o.Value, ...]
    outputs: tuple[o.Value, ...]


@dataclass(frozen=True, slots=True)
class _LivedGraph:
    ops: tuple[_Lived, ...]
    logits: o.Value


def plan_values(graph: FusedGraph, keep: Collection[str] = ()) -> MemoryPlan:
    """Where values lie; keys and values live on until attention, which may store them.

    Those to `keep`, by name, live to the end. Halves take half of the room that a plan knows of.
    """
    halves = half_values(graph)

    def stored(values: Sequence[o.Value]) -> tuple[o.Value, ...]:
        return tuple(
            o.Value(value.name, -(-value.width // 2)) if value.name in halves else value
            for value in values
        )

    stores = {op.kv_layer: op for op in graph.ops if isinstance(op, o.StoreKv)}
    lived = tuple(
        _Lived(stored((*op.inputs, *stores[op.kv_layer].inputs)), stored(op.outputs))
        if isinstance(op, o.Attend)
        and op.kv_layer in stores
        and stores[op.kv_layer].query == op.query
        else _Lived(stored(op.inputs), stored(op.outputs))
        for op in graph.ops
    )
    return MemoryPlan.of(_LivedGraph(lived, graph.logits), keep)


def selected_values(ops: Sequence[o.Op]) -> frozenset[str]:
    """Values with rows only for the tokens whose logits are wanted: all from a selection on."""
    first = next((index for index, op in enumerate(ops) if op.selects), len(ops))
    return frozenset(value.name for op in ops[first:] for value in op.outputs)


def mixed_norms(graph: FusedGraph) -> dict[str, o.FusedLinear]:
    """Mixes of experts that the next op, a linear layer, reads through an RMS norm.

    The kernel that mixes computes that norm, too. The key is the name of the mix.
    """
    found = {}
    for op, following in pairwise(graph.ops):
        if isinstance(op, o.ExpertMix) and isinstance(following, o.FusedLinear):
            norm = following.norm
            if following.source == op.out and norm and _is_plain(norm, op.out.width):
                found[op.out.name] = following
    return found


def _is_plain(norm: o.Normalization, width: int) -> bool:
    """Whether it is an RMS norm of whole rows, with weights alone."""
    weighted = norm.weight is not None and norm.bias is None
    return norm.kind is o.NormKind.RMS and norm.run == width and weighted


def half_values(graph: FusedGraph) -> dict[str, float]:
    """Which values are halves, and their scales. A selection of such a value is one, too."""
    readers: dict[str, list[o.Op]] = {}
    for op in graph.ops:
        for value in op.inputs:
            readers.setdefault(value.name, []).append(op)

    def plain(value: o.Value) -> bool:
        found = readers.get(value.name, [])
        return bool(found) and all(_reads_as_it_is(op, value, plain) for op in found)

    halves: dict[str, float] = {}
    for op in graph.ops:
        match op:
            case o.Attend() | o.ExpertGate() | o.Activate() | o.Xielu() if plain(op.out):
                halves[op.out.name] = HALF_SCALE
            case o.FusedLinear() if op.activation and plain(op.outputs[0]):
                halves[op.outputs[0].name] = HALF_SCALE
            case o.HeadLinear() if plain(op.out):
                halves[op.out.name] = HALF_SCALE
            case o.FusedNorm() if not op.residual and plain(op.out):
                halves[op.out.name] = 1.0
            case o.Select() if op.source.name in halves:
                halves[op.out.name] = halves[op.source.name]
    return halves


def input_width(graph: FusedGraph) -> int:
    """Of the widest row of halves that is made for a linear layer, filled up; 0: there is none."""
    halves = half_values(graph)
    widths = [
        op.source.width
        for op in graph.ops
        if isinstance(op, o.FusedLinear | o.ExpertGate | o.ExpertMix | o.HeadLinear)
        if op.source.name not in halves or (isinstance(op, o.FusedLinear) and op.norm)
    ]
    return -(-max(widths, default=0) // _FILLED) * _FILLED


def _reads_as_it_is(op: o.Op, value: o.Value, plain: Callable[[o.Value], bool]) -> bool:
    match op:
        case o.FusedLinear():
            return op.source == value and op.norm is None and value not in _residuals(op)
        case o.ExpertGate():
            return op.source == value
        case o.HeadLinear():
            return op.source.width == op.heads * op.inputs_of_head
        case o.ExpertMix():
            return op.source == value and op.residual != value
        case o.Select():
            return plain(op.out)
        case _:
            return False


def _residuals(op: o.FusedLinear) -> list[o.Value]:
    return [part.residual for part in op.parts if part.residual]
