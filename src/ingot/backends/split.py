"""SplitBackend: backends that run a part of a model each, one after the other.

A part's rows are handed to the next once a step. Each has a cache for its own layers only; all have
as many blocks, so the same tables serve them. Outside, a block is what it is without a split: the
bytes of the first layers, then those of the others. Knows nothing of devices.
"""

from collections.abc import Sequence
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

    def batch(self, whole: Batch) -> Batch:
        """A batch for this part, if it is the last one: with the tables of its groups."""
        return replace(
            whole, tables=[[tables[group] for group in self.groups] for tables in whole.tables]
        )

    def every_row(self, whole: Batch) -> Batch:
        """The same if another part follows: the rows of all tokens are wanted."""
        return replace(self.batch(whole), outputs=np.arange(len(whole.ids), dtype=np.int32))


class SplitBackend:
    """A model of which each part runs on a backend for itself."""

    def __init__(self, parts: Sequence[tuple[Backend, PartLayout]]) -> None:
        """Two parts or more, in order."""
        self._parts = parts

    @property
    def max_tokens(self) -> int:
        """The most tokens of one step."""
        return min(backend.max_tokens for backend, _ in self._parts)

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Logits [outputs, vocabulary]."""
        rows = batch.rows
        for backend, layout in self._parts[:-1]:
            rows = backend.forward(replace(layout.every_row(batch), rows=rows))
        backend, layout = self._parts[-1]
        return backend.forward(replace(layout.batch(batch), rows=rows))

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
