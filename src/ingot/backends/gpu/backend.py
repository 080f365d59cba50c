"""Build the launches of a model once, then run them for every batch.

A graph, its open file and the size of the cache come in, as for the CPU; `forward` turns a batch
into logits. Weights are sent to the device when the backend is made. Steps of a generation are
captured once for 1, 2, 4, ... sequences and replayed.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

from ingot.backends.backend import OnSent
from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.device_sampler import SamplingPlan, Started
from ingot.backends.gpu.attention import AttentionLauncher, PromptTile
from ingot.backends.gpu.device import Device, give_back
from ingot.backends.gpu.experts import ExpertLauncher
from ingot.backends.gpu.inputs import InputBuffer, query_tiles
from ingot.backends.gpu.linear import LinearLauncher
from ingot.backends.gpu.lower_state import State
from ingot.backends.gpu.lowering import lower
from ingot.backends.gpu.matrices import MatrixStore, matrix_sources
from ingot.backends.gpu.memory import DeviceMemory, require
from ingot.backends.gpu.planner import GpuPlan, count_needs
from ingot.backends.gpu.replay import Replay
from ingot.backends.gpu.room import Room
from ingot.backends.gpu.sampler import accepts as sampler_accepts
from ingot.backends.gpu.step import Step
from ingot.backends.gpu.upload import Uploader
from ingot.backends.gpu.values import Values, half_values
from ingot.backends.gpu.vectors import Vectors
from ingot.errors import MemoryShortageError, ModelError
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph
from ingot.graph.kv_layout import KvLayout, block_count


@contextmanager
def _at_work(device: Device) -> Iterator[None]:
    """On the device, whichever the thread has chosen; memory that is short is told as ours is."""
    try:
        with device.chosen():
            yield
    except torch.OutOfMemoryError as error:  # it was free when the plan was made
        raise MemoryShortageError(
            "device memory that was free is so no longer: another program has taken it; try again"
        ) from error


class GpuBackend:
    """A model ready to run on the GPU."""

    def __init__(
        self,
        graph: ComputationGraph,
        model: GgufLoader,
        layout: KvLayout,
        *,
        blocks: int,
        context: int,
        device: Device,
        max_tokens: int = 4096,
        progress: OnSent | None = None,
    ) -> None:
        """`progress` is told how many bytes of the weights have been sent, and of how many."""
        self.layout = layout
        self.max_tokens = max_tokens
        self.device = device
        self.memory = DeviceMemory(device.torch)
        self.vocabulary = graph.logits.width
        with _at_work(device):
            self._prepare(graph, model, blocks, context, progress)

    def _prepare(
        self,
        graph: ComputationGraph,
        model: GgufLoader,
        blocks: int,
        context: int,
        progress: OnSent | None,
    ) -> None:
        """Bring the weights to the device and decide all launches."""
        device, layout, max_tokens = self.device, self.layout, self.max_tokens
        plan = GpuPlan.of(graph, model)
        fused, self.plan, self.decoded = plan.graph, plan.values, plan.decoded(model)
        needs = count_needs(plan, model, layout, device, context=context, tokens=max_tokens)
        require(needs.total(blocks), device.free_memory())
        store = MatrixStore(model, self.memory.pool(plan.weight_bytes))
        sources = matrix_sources(plan.matrices, model)
        total = plan.sent_bytes(model)
        with Uploader(device, sources, total, progress) as self.uploader:
            for matrix in plan.matrices:
                store.receive(matrix, self.uploader)
        give_back()  # what packing needed
        places = Room.of(
            self.memory,
            fused,
            self.plan,
            plan.matrices,
            layout,
            device,
            blocks=blocks,
            context=context,
            tokens=max_tokens,
        )
        self.pools = places.cache
        largest = max((layer.head_size for layer in fused.kv_layers), default=1)
        self._tile = PromptTile.of(largest, layout.type, device)
        self.inputs = InputBuffer(
            device.torch,
            tokens=max_tokens,
            sequences=min(max_tokens, blocks),
            groups=len(layout.groups),
            blocks=block_count(context),
            query_tile=self._tile.rows,
        )
        state = State(
            graph=fused,
            cap=plan.cap,
            model=model,
            values=Values(self.plan, places.arena, max_tokens, half_values(fused)),
            vectors=Vectors(model, device.torch, context),
            store=store,
            linear=LinearLauncher(device, places.linear),
            attention=AttentionLauncher(device, context, places.attention, layout.type, self._tile),
            experts=ExpertLauncher(device, places.experts) if places.experts else None,
            layout=layout,
            pools=self.pools,
            table_blocks=self.inputs.blocks,
            x=places.x,
            turned=places.turned,
            chosen=places.sampler.chosen,
        )
        self._program = lower(state)
        self._replay = Replay(device, self._program, self.inputs, places.sampler)
        device.wait()

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
