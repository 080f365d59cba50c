"""Sums of squares of what goes into every matrix of a model: an importance matrix in the making.

In: an open file and chunks of tokens. Out: `InputSums` by tensor, of each matrix if a tensor holds
several (experts, heads). Only matrices of layers are looked at, as in llama.cpp. On the CPU, the
inputs of all matrices are kept until the end of a step; a GPU adds them up before each operation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ingot.arrays import Floats, Ints
from ingot.backends.backend import choose_device
from ingot.engine.model.chunk_runner import STATES, ChunkRunner, chunk_batches
from ingot.errors import ConfigError, MemoryShortageError, ModelError
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph
from ingot.graph import ops as o
from ingot.graph.kv_layout import KvLayout, block_count
from ingot.graph.kv_type import KvType
from ingot.kvcache import BlockPool
from ingot.models import build_graph
from ingot.quantize.imatrix import InputSums

if TYPE_CHECKING:
    from ingot.backends.gpu import Device

_KEPT_BYTES = 1 << 30  # of all inputs of a step, if it has more than the least tokens
_LEAST, _MOST = 16, 512  # tokens of a step


@dataclass(frozen=True, slots=True)
class _Read:
    """A matrix, the value it multiplies, and if it belongs to experts who was chosen."""

    weight: o.Weight
    source: o.Value
    choice: o.Value | None = None
    heads: int = 0  # parts of the source, each with a matrix

    def empty(self) -> InputSums:
        matrices = self.weight.shape[0] if len(self.weight.shape) > 2 else 1
        columns = self.weight.shape[-1]
        return InputSums(np.zeros((matrices, columns)), np.zeros(matrices, np.int64))

    def add(self, sums: InputSums, source: Floats, choice: Floats | None) -> None:
        """Add the squares of some rows."""
        columns = self.weight.shape[-1]
        if self.heads:
            squares = _squares(source.reshape(len(source), self.heads, -1)[..., :columns])
            by_head = squares.sum(axis=0)
            sums.add(by_head if len(sums.counts) > 1 else by_head.sum(axis=0), len(source))
        elif choice is None:
            sums.add(np.einsum("tc,tc->c", source, source, dtype=np.float64), len(source))
        else:
            used = choice.shape[1] // 2
            experts = choice[:, :used].astype(np.int64)
            own = np.broadcast_to(
                source.reshape(len(source), -1, columns), (*experts.shape, columns)
            )
            for expert in np.unique(experts):
                rows = own[experts == expert]
                sums.sums[expert] += np.einsum("tc,tc->c", rows, rows, dtype=np.float64)
                sums.counts[expert] += len(rows)


def _squares(values: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.square(values, dtype=np.float64)


def sum_inputs(
    file: GgufLoader,
    chunks: Sequence[Ints],
    *,
    threads: int,
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, InputSums]:
    """Run the chunks; `progress(done, total)` counts them.

    With the device "auto", a model that the GPU cannot run runs on the CPU.
    """
    told = progress or (lambda *_: None)
    try:
        gpu = choose_device(device)
        if gpu is not None:
            return _sum_on_gpu(gpu, file, chunks, told)
    except (ConfigError, ModelError, MemoryShortageError):
        if device != "auto":
            raise
    return _sum_on_cpu(file, chunks, threads, told)


def _sum_on_cpu(
    file: GgufLoader, chunks: Sequence[Ints], threads: int, progress: Callable[[int, int], None]
) -> dict[str, InputSums]:
    longest = max(map(len, chunks))
    graph = build_graph(file, longest, hidden=True)
    reads = _reads(graph)
    kept = {value.name: value for read in reads for value in (read.source, read.choice) if value}
    size = 4 * sum(value.width for value in kept.values())
    step = min(max(_KEPT_BYTES // max(size, 1), _LEAST), _MOST)
    runner = ChunkRunner(graph, file, chunk=longest, step=step, threads=threads, keep=kept)
    sums = {read.weight.name: read.empty() for read in reads}
    for number, chunk in enumerate(chunks):
        progress(number, len(chunks))
        for tokens, _ in runner.steps(chunk):
            count = tokens.stop - tokens.start
            rows = {name: runner.kept(name, value.width, count) for name, value in kept.items()}
            for read in reads:
                choice = rows[read.choice.name] if read.choice else None
                read.add(sums[read.weight.name], rows[read.source.name], choice)
    progress(len(chunks), len(chunks))
    return sums


def _sum_on_gpu(
    gpu: "Device",
    file: GgufLoader,
    chunks: Sequence[Ints],
    progress: Callable[[int, int], None],
) -> dict[str, InputSums]:
    """Fusion leaves the values that matrices read; the last layer runs for all tokens."""
    from ingot.backends.gpu import DeviceSums, GpuBackend, GpuPlan  # noqa: PLC0415 (PyTorch)

    longest = max(map(len, chunks))
    graph = build_graph(file, longest, every_row=True)
    if graph.encoder is not None:
        raise ModelError(f"{file.path} is an encoder-decoder: measure it with device='cpu'")
    read = {read.source.name for read in _reads(graph)}
    layout = KvLayout.of(graph.kv_layers, KvType.F16, graph.states)
    plan = GpuPlan.of(
        graph,
        file,
        layout,
        gpu,
        context=longest,
        tokens=_MOST,
        sequences=1,
        unfused=read,
    )
    blocks, states = block_count(longest) + 1, STATES if layout.recurrent else 0
    backend = GpuBackend(plan, file, blocks=blocks, states=states)
    pool = BlockPool(layout, blocks, states)
    sums = DeviceSums(gpu.torch)
    for number, chunk in enumerate(chunks):
        progress(number, len(chunks))
        for _, batch in chunk_batches(pool, chunk, backend.max_tokens, every=len(chunk)):
            backend.watch(batch, partial(sums.add, len(batch.ids)))
            if file.is_mapped:
                file.check()
    progress(len(chunks), len(chunks))
    return {name: InputSums(*found) for name, found in sums.found().items()}


def _reads(graph: ComputationGraph) -> list[_Read]:
    """The matrices of all layers; one that several operations read from one value counts once."""
    found: dict[tuple[str, str], _Read] = {}
    for op in graph.ops:
        if op.layer is None:
            continue
        match op:
            case o.Linear():
                read = _Read(op.weight, op.source)
            case o.ExpertLinear():
                read = _Read(op.weight, op.source, op.choice)
            case o.HeadLinear(transposed=False):
                read = _Read(op.weight, op.source, heads=op.heads)
            case _:
                continue
        found.setdefault((read.weight.name, read.source.name), read)
    return list(found.values())
