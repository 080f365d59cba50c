"""MemoryPlan: where every value of a graph lives in one arena.

A value is alive from the operation that writes it to the last one that reads it; two
values may share bytes if they are never alive together. Values are placed largest first,
each at the lowest offset that is free for its whole life: within a few percent of the
peak of live bytes on the networks we run. Offsets are in bytes per token, so one plan serves
every batch size. The logits have no place in it: they go where the caller wants them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ingot.graph.ops import Value

ALIGNMENT = 64  # bytes per token: a cache line, and the widest vector register
_FLOAT = 4


class Planned(Protocol):
    """An operation, fused or not."""

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Values read."""

    @property
    def outputs(self) -> tuple[Value, ...]:
        """Values written."""


class PlannedGraph(Protocol):
    """A graph, fused or not."""

    @property
    def ops(self) -> Sequence[Planned]:
        """Operations in the order they run."""

    @property
    def logits(self) -> Value:
        """What goes elsewhere."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A value's place in the arena and its life, as indices of operations."""

    offset: int
    size: int
    first: int
    last: int

    def overlaps(self, first: int, last: int) -> bool:
        """Whether the value is alive at any operation from first to last."""
        return self.first <= last and first <= self.last


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Slots by value name; `size` bytes per token hold them all."""

    slots: Mapping[str, Slot]
    size: int

    @classmethod
    def of(cls, graph: PlannedGraph, keep: Collection[str] = ()) -> "MemoryPlan":
        """Plan a graph; the values to `keep`, by name, live to its end."""
        lives: dict[str, tuple[int, int, int]] = {}  # name -> size, first, last
        for index, op in enumerate(graph.ops):
            for value in op.inputs:
                size, first, _ = lives[value.name]
                lives[value.name] = size, first, index
            for value in op.outputs:
                size = -(-value.width * _FLOAT // ALIGNMENT) * ALIGNMENT
                lives[value.name] = size, index, index
        del lives[graph.logits.name]
        for name in keep:
            size, first, _ = lives[name]
            lives[name] = size, first, len(graph.ops)

        placed: dict[str, Slot] = {}
        for name, (size, first, last) in sorted(lives.items(), key=lambda item: -item[1][0]):
            offset = 0
            neighbours = [slot for slot in placed.values() if slot.overlaps(first, last)]
            for slot in sorted(neighbours, key=lambda slot: slot.offset):
                if slot.offset - offset >= size:
                    break
                offset = max(offset, slot.offset + slot.size)
            placed[name] = Slot(offset, size, first, last)
        end = max(slot.offset + slot.size for slot in placed.values())
        return cls({name: placed[name] for name in lives}, end)
