"""Build the native program of a model once, then run it for every batch.

A graph, its open file and the size of the cache come in; `forward` turns a batch into
logits in one native call. Weights stay in the mapped file. Which block belongs to which
sequence is the caller's business (`ingot.kvcache`).
"""

from collections.abc import Collection, Sequence
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from ingot import _native
from ingot.adapters import Adapter
from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.cpu.handover import Handover, native_low_ranks, native_precision, stored_as
from ingot.backends.cpu.seats import Seat
from ingot.backends.cpu.team_size import TeamSize
from ingot.backends.precision import Precision
from ingot.errors import ThreadLimitError
from ingot.gguf import HasTensors
from ingot.graph import ComputationGraph, MemoryPlan
from ingot.graph.fusion import fuse
from ingot.graph.kv_layout import KvLayout
from ingot.graph.ops import Value

Pools = Sequence[NDArray[np.uint8]]  # the cache, group by group
_NO_TABLES = np.empty(0, np.int32)


class CpuBackend:
    """A model ready to run on the CPU."""

    def __init__(
        self,
        graph: ComputationGraph,
        model: HasTensors,
        layout: KvLayout,
        *,
        blocks: int,
        context: int,
        threads: int,
        precision: Precision,
        seats: Sequence[Seat] = (),
        max_tokens: int = 512,
        states: int = 0,
        keep: Collection[str] = (),
        pools: Pools | None = None,
    ) -> None:
        """`blocks` of every group of the cache, `states` of that of recurrent operations.

        Each of the `threads` has a seat, or none has one, and the system chooses their CPUs.
        `keep` names values that `kept` can tell after a step. `pools` are the cache of another
        program, if both share it.
        """
        stored_as(layout.type)  # or say what can be stored, before anything is allocated
        self.layout = layout
        self.max_tokens = max_tokens
        self.pools = pools or [
            np.empty((states if group.recurrent else blocks) * group.block_bytes, np.uint8)
            for group in layout.groups
        ]
        self._vocabulary = graph.logits.width
        self._graph = fuse(graph, keep)
        self.plan = MemoryPlan.of(self._graph, keep)
        try:
            self._program = _native.Program(
                threads=threads,
                seats=[(seat.cpus, seat.node, seat.replica) for seat in seats],
                precision=native_precision(precision),
                arena_bytes_per_token=self.plan.size,
                max_tokens=max_tokens,
                max_positions=context,
            )
        except OSError as error:
            raise ThreadLimitError(
                f"the {threads} threads of the model cannot be started ({error.strerror}): ask "
                "for fewer (threads, INGOT_THREADS), end other threads or processes, or raise the "
                "limit (ulimit -u, or pids of the container)"
            ) from None
        self._team = TeamSize(threads)
        self._selected = False
        self._ids: dict[str, int] = {}
        handover = Handover(model, layout, graph.kv_layers, self.pools, self._value)
        for op in self._graph.ops:
            self._selected |= op.selects  # so is every value from here on
            self._program.add(handover.operation(op))

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Logits [outputs, vocabulary]."""
        logits = np.empty((len(batch.outputs), self._vocabulary), np.float32)
        tables = [table for tables in batch.tables for table in tables]
        is_prompt = batch.phase is ExecutionPhase.PROMPT
        started = perf_counter()
        waited = self._program.run(
            ids=batch.ids,
            positions=batch.positions,
            counts=batch.counts,
            tables=np.concatenate(tables) if tables else _NO_TABLES,
            table_ends=np.cumsum([len(table) for table in tables], dtype=np.int32),
            outputs=batch.outputs,
            types=batch.types,
            rows=batch.rows,
            adapters=batch.adapters,
            adapter_scales=batch.adapter_scales,
            encoded=batch.encoded,
            expanded=batch.expanded,
            prompt=is_prompt,
            logits=logits,
            threads=self._team.most if is_prompt else self._team.size,
        )
        if not is_prompt:
            self._team.report(len(batch.ids), perf_counter() - started, waited)
        return logits

    def attach(self, slot: int, adapter: Adapter | None) -> None:
        """Keep an adapter in a slot, for the sequences of a batch that name it; None: free it."""
        added = adapter or Adapter("none", {})
        additions = [added.additions(op) for op in self._graph.ops if op.is_adaptable]
        handed = native_low_ranks([low for lows in additions for low in lows])
        for number, lows in enumerate(additions):
            for part in range(len(lows)):
                self._program.adapt(slot=slot, op=number, part=part, weights=next(handed))

    @property
    def cache_bytes(self) -> int:
        """The memory that the cache takes; pages come as steps touch them."""
        return sum(pool.nbytes for pool in self.pools)

    @property
    def arena_bytes(self) -> int:
        """The memory that values between operations take; pages come as steps touch them."""
        return self.plan.size * self.max_tokens

    @property
    def copied_bytes(self) -> int:
        """The memory that copies of matrices take (`repacking`)."""
        return self._program.copied_bytes

    @property
    def copies_replace(self) -> bool:
        """Whether the matrices themselves are not read any more once all are copied."""
        return self._program.copies_replace

    def copy_next(self) -> bool:
        """Copy the next matrix, in any thread; False: all are copied."""
        return self._program.copy_next()

    def kept(self, name: str, tokens: int, out: NDArray[np.float32]) -> None:
        """Copy rows of a value that was to be kept, after a step of so many tokens."""
        self._program.read(value=self._ids[name], tokens=tokens, out=out)

    def copy_block(self, group: int, source: int, target: int) -> None:
        """Give a block of the cache the content of another one."""
        size, pool = self.layout.groups[group].block_bytes, self.pools[group]
        pool[target * size : (target + 1) * size] = pool[source * size : (source + 1) * size]

    def read_block(self, group: int, index: int) -> NDArray[np.uint8]:
        """The bytes of a block of the cache."""
        size = self.layout.groups[group].block_bytes
        return self.pools[group][index * size : (index + 1) * size]

    def write_block(self, group: int, index: int, data: NDArray[np.uint8]) -> None:
        """Give a block of the cache these bytes."""
        self.read_block(group, index)[:] = data

    def _value(self, value: Value) -> int:
        if value.name not in self._ids:
            logits = value == self._graph.logits
            self._ids[value.name] = self._program.value(
                offset=0 if logits else self.plan.slots[value.name].offset,
                width=value.width,
                selected=self._selected,
                logits=logits,
            )
        return self._ids[value.name]
