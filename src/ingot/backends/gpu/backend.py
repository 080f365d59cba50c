"""Build the launches of a planned model once, then run them for every batch.

A plan, the open file and the size of the cache come in; `forward` turns a batch into logits.
Weights are sent to the device when the backend is made. Steps that decode one token of each
sequence are captured once for 1, 2, 4, ... sequences and replayed.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

from ingot.backends.backend import OnSent
from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.device_sampler import SamplingPlan, Started
from ingot.backends.gpu.device import Device, give_back
from ingot.backends.gpu.inputs import InputBuffer, query_tiles
from ingot.backends.gpu.lowering import Context, Step, lower
from ingot.backends.gpu.memory import DeviceMemory, require
from ingot.backends.gpu.planner import GpuPlan, StepMemory
from ingot.backends.gpu.replay import Replay
from ingot.backends.gpu.sampler import accepts as sampler_accepts
from ingot.backends.gpu.upload import Uploader
from ingot.backends.gpu.values import Values
from ingot.backends.gpu.weights import MatrixStore, Vectors, matrix_sources
from ingot.errors import MemoryShortageError, ModelError
from ingot.gguf import GgufLoader
from ingot.graph.kv_layout import block_count


@contextmanager
def _at_work(device: Device) -> Iterator[None]:
    """On the device, whichever the thread has chosen; PyTorch's shortage of memory becomes ours."""
    try:
        with device.chosen():
            yield
    except torch.OutOfMemoryError as error:  # it was free when the plan was made
        raise MemoryShortageError(
            "GPU memory ran out while the model was loading or running, because another program "
            "has taken it: close other programs, or set gpu_layers"
        ) from error


class GpuBackend:
    """A model ready to run on the GPU."""

    def __init__(
        self,
        plan: GpuPlan,
        model: GgufLoader,
        *,
        blocks: int,
        progress: OnSent | None = None,
    ) -> None:
        """Send the weights and decide all launches, for a cache of so many blocks.

        `progress` is called with the bytes of weights sent so far, and with their total.
        """
        self.layout = plan.layout
        self.max_tokens = plan.tokens
        self.device = plan.device
        self.decoded = plan.decoded
        self.memory = DeviceMemory(plan.device.torch)
        self.vocabulary = plan.graph.logits.width
        self._tile = plan.query_tile
        with _at_work(plan.device):
            require(plan.needs.total(blocks), plan.device.free_memory())
            matrices = self._send(plan, model, progress)
            self._prepare(plan, model, matrices, blocks)
            plan.device.wait()

    def _send(self, plan: GpuPlan, model: GgufLoader, progress: OnSent | None) -> MatrixStore:
        """Bring the weights to the device."""
        store = MatrixStore(model, self.memory.pool(plan.needs.weights))
        sources = matrix_sources(plan.matrices, model)
        with Uploader(plan.device, sources, plan.sent_bytes, progress) as self.uploader:
            for matrix in plan.matrices:
                store.receive(matrix, self.uploader)
        give_back()  # what packing needed
        return store

    def _prepare(
        self, plan: GpuPlan, model: GgufLoader, matrices: MatrixStore, blocks: int
    ) -> None:
        """Ask for the memory of steps and decide all launches."""
        device, tokens = plan.device, plan.tokens
        memory = StepMemory.of(
            self.memory,
            plan.graph,
            plan.values,
            plan.matrices,
            plan.layout,
            device,
            blocks=blocks,
            context=plan.context,
            tokens=tokens,
        )
        self.pools = memory.cache
        self.inputs = InputBuffer(
            device.torch,
            tokens=tokens,
            sequences=min(tokens, blocks),
            groups=len(plan.layout.groups),
            blocks=block_count(plan.context),
            query_tile=plan.query_tile.rows,
        )
        context = Context(
            plan=plan,
            model=model,
            values=Values(plan.values, memory.arena, tokens, plan.halves),
            vectors=Vectors(model, device.torch, plan.context),
            matrices=matrices,
            memory=memory,
            table_stride=self.inputs.blocks,
        )
        self._program = lower(context)
        self._replay = Replay(device, self._program, self.inputs, memory.sampler)

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Logits [outputs, vocabulary]."""
        with _at_work(self.device):
            return self._forward(batch)

    def _forward(self, batch: Batch) -> NDArray[np.float32]:
        if self._replay.takes(batch):
            return self._replay.start(batch, [None] * len(batch.ids)).result().logits
        tokens, wanted = len(batch.ids), len(batch.outputs)
        if tokens > self.max_tokens:
            raise ModelError(f"a step takes at most {self.max_tokens} tokens, not {tokens}")
        prompt = batch.phase is ExecutionPhase.PROMPT
        tiles = query_tiles(batch, self._tile.rows) if prompt else np.empty((0, 3), np.int32)
        inputs = self.inputs.fill(batch, tiles)
        logits = torch.empty(
            (wanted, self.vocabulary), dtype=torch.float32, device=self.device.torch
        )
        single = not prompt and tokens == len(batch.counts)
        self._program.run(Step(inputs, batch.phase, logits, single))
        found: NDArray[np.float32] = logits.cpu().numpy()
        return found

    def accepts(self, plan: SamplingPlan) -> bool:
        """Whether the device can follow this plan."""
        return sampler_accepts(plan, self.vocabulary)

    def start(self, batch: Batch, plans: Sequence[SamplingPlan | None]) -> Started:
        """Run one new token of each of some sequences and sample their next; at most two at a time.

        An id of -1 - r is the token that row r of the step started before this one sampled.
        """
        assert self._replay.takes(batch), "one token of each sequence"
        with _at_work(self.device):
            return self._replay.start(batch, plans)

    def copy_block(self, group: int, source: int, target: int) -> None:
        """Give a block of the cache the content of another one."""
        self._block(group, target).copy_(self._block(group, source))

    def read_block(self, group: int, index: int) -> NDArray[np.uint8]:
        """The bytes of a block of the cache."""
        found: NDArray[np.uint8] = self._block(group, index).cpu().numpy()
        return found

    def write_block(self, group: int, index: int, data: NDArray[np.uint8]) -> None:
        """Give a block of the cache these bytes."""
        self._block(group, index).copy_(torch.from_numpy(np.array(data)))  # which may be read-only

    def _block(self, group: int, index: int) -> torch.Tensor:
        size = self.layout.groups[group].block_bytes
        return self.pools[group][index * size : (index + 1) * size]
