"""SplitBackend: two backends that run a part of a model each, one behind the other.

The first part's rows are handed to the second once a step. Each has a cache for its own layers
only; both have as many blocks, so the same tables serve both. Outside, a block is what it is
without a split: the bytes of the first layers, then those of the others. Knows nothing of devices.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ingot.adapters import Adapter
from ingot.backends.backend import Backend
from ingot.backends.batch import Batch
from ingot.graph import ComputationGraph
from ingot.graph.kv_layout import KvLayout


@dataclass(frozen=True, slots=True)
class PartLayout:
    """The cache of one part."""

    own: KvLayout
    groups: tuple[int, ...]  # of the whole cache: which of them its own are

    @classmethod
    def of(cls, graph: ComputationGraph, whole: KvLayout) -> "PartLayout":
        """Lay out the layers of a part."""
        own = KvLayout.of(graph.kv_layers, whole.type, graph.states)
        kinds = [(group.window, group.recurrent) for group in whole.groups]
        return cls(own, tuple(kinds.index((group.window, group.recurrent)) for group in own.groups))


class SplitBackend:
    """A model whose first layers run on one backend, and the others on a second."""

    def __init__(
        self, first: Backend, first_layout: PartLayout, second: Backend, second_layout: PartLayout
    ) -> None:
        self.first, self.second = first, second
        self._parts = ((first, first_layout), (second, second_layout))

    @property
    def max_tokens(self) -> int:
        """The most tokens of one step."""
        return min(self.first.max_tokens, self.second.max_tokens)

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Logits [outputs, vocabulary]."""
        every = np.arange(len(batch.ids), dtype=np.int32)
        (first, layout), (second, second_layout) = self._parts
        rows = first.forward(replace(batch, outputs=every, tables=_tables(batch, layout)))
        return second.forward(replace(batch, rows=rows, tables=_tables(batch, second_layout)))

    def attach(self, slot: int, adapter: Adapter | None) -> None:
        """Keep an adapter in a slot: each part has what concerns its layers."""
        for backend, _ in self._parts:
            backend.attach(slot, adapter)

    def copy_block(self, group: int, source: int, target: int) -> None:
        """Give a block of the cache the content of another one."""
        for backend, own, _ in self._holders(group):
            backend.copy_block(own, source, target)

    def read_block(self, group: int, index: int) -> NDArray[np.uint8]:
        """The bytes of a block of the cache."""
        return np.concatenate(
            [backend.read_block(own, index) for backend, own, _ in self._holders(group)]
        )

    def write_block(self, group: int, index: int, data: NDArray[np.uint8]) -> None:
        """Give a block of the cache these bytes."""
        start = 0
        for backend, own, size in self._holders(group):
            backend.write_block(own, index, data[start : start + size])
            start += size

    def _holders(self, group: int) -> list[tuple[Backend, int, int]]:
        """The parts that have layers in a group: its number there, and the bytes of a block."""
        return [
            (backend, own, layout.own.groups[own].block_bytes)
            for backend, layout in self._parts
            for own, number in enumerate(layout.groups)
            if number == group
        ]


def _tables(batch: Batch, layout: PartLayout) -> list[list[NDArray[np.int32]]]:
    """Those of the groups that a part has."""
    return [[tables[group] for group in layout.groups] for tables in batch.tables]
