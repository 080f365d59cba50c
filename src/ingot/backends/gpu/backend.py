"""Build the launches of a planned model once, then run them for every batch.

A plan, the open file and the size of the cache come in; `forward` turns a batch into logits.
When the backend is made, weights are sent to the device, all kernels are compiled, and the steps of
all buckets are captured: none of that happens later.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray

from ingot.adapters import Adapter
from ingot.backends.backend import OnOpening, Prepared, Stage
from ingot.backends.batch import Batch
from ingot.backends.device_sampler import SamplingPlan, Started
from ingot.backends.gpu.adapters import AdapterBank
from ingot.backends.gpu.compile_ahead import compile_ahead
from ingot.backends.gpu.device import Device, give_back
from ingot.backends.gpu.graphs import Graphs
from ingot.backends.gpu.inputs import InputBuffer
from ingot.backends.gpu.lowering import Context, lower
from ingot.backends.gpu.memory import DeviceMemory, require
from ingot.backends.gpu.planner import GpuPlan, StepMemory
from ingot.backends.gpu.prompts import PromptReplay
from ingot.backends.gpu.replay import DecodeReplay
from ingot.backends.gpu.sampler import accepts as sampler_accepts
from ingot.backends.gpu.upload import Uploader
from ingot.backends.gpu.values import Values
from ingot.backends.gpu.variants import Kernels, Start, Variants
from ingot.backends.gpu.weights import MatrixStore, Vectors, matrix_sources
from ingot.errors import MemoryShortageError, ModelError
from ingot.gguf import GgufLoader
from ingot.graph import ops as o
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
        states: int = 0,
        progress: OnOpening | None = None,
        weights: MatrixStore | None = None,
    ) -> None:
        """Send the weights, decide all launches, compile and capture them.

        The cache has so many blocks, and the group of recurrent operations so many `states`.
        `weights`: those of another backend for the same file, which are sent already.
        """
        self.layout = plan.layout
        self.max_tokens = plan.tokens
        self.device = plan.device
        self.decoded = plan.decoded
        self.memory = DeviceMemory(plan.device.torch)
        self.vocabulary = plan.graph.logits.width
        self._at_ready = Prepared()
        with _at_work(plan.device):
            sent = 0 if weights is None else plan.needs.weights
            require(plan.needs.total(blocks, states) - sent, plan.device.free_memory())
            self.weights = self._send(plan, model, progress) if weights is None else weights
            self._prepare(plan, model, self.weights, blocks, states)
            self._warm(progress)
            plan.device.wait()
        self._at_ready = self.prepared

    def _send(self, plan: GpuPlan, model: GgufLoader, progress: OnOpening | None) -> MatrixStore:
        """Bring the weights to the device."""
        store = MatrixStore(model, self.memory.pool(plan.needs.weights))
        sources = matrix_sources(plan.matrices, model)
        told = partial(progress, Stage.WEIGHTS) if progress else None
        with Uploader(plan.device, sources, plan.sent_bytes, told) as self.uploader:
            for matrix in plan.matrices:
                store.receive(matrix, self.uploader)
        give_back()  # what packing needed
        return store

    def _prepare(
        self, plan: GpuPlan, model: GgufLoader, matrices: MatrixStore, blocks: int, states: int
    ) -> None:
        """Ask for the memory of steps and decide all launches."""
        device, tokens = plan.device, plan.tokens
        # A sequence holds a block of every group of keys and values, or a state.
        sequences = min(tokens, blocks if plan.needs.block else states)
        memory = StepMemory.of(
            self.memory,
            plan.graph,
            plan.values,
            plan.matrices,
            plan.layout,
            device,
            blocks=blocks,
            states=states,
            context=plan.context,
            tokens=tokens,
            sequences=plan.sequences,
        )
        self.pools = memory.cache
        self.inputs = InputBuffer(
            device.torch,
            tokens=tokens,
            sequences=sequences,
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
            adapters=AdapterBank(plan.ops, device, tokens),
            table_stride=self.inputs.blocks,
        )
        self._ops, self._values = plan.ops, context.values
        self._bank, self._sampler = context.adapters, memory.sampler
        self._program, self.kernels, self.graphs = lower(context), Kernels(device), Graphs(device)
        self._sequences = plan.sequences
        self._decode = DecodeReplay(
            device,
            self._program,
            self.inputs,
            memory.sampler,
            self.graphs,
            sequences=plan.sequences,
        )
        self._adapted: DecodeReplay | None = None  # decode steps with adapters
        self._prompts = PromptReplay(
            device,
            self._program,
            self.inputs,
            memory.sampler,
            self.graphs,
            tokens=tokens,
            sequences=sequences,
            query_tile=plan.query_tile.rows,
            decodes=plan.sequences > 0,
        )

    def _warm(self, progress: OnOpening | None) -> None:
        """Compile all kernels, run each of them, and capture the steps of all buckets."""
        if not self.device.interpreted:
            variants, found = Variants(), []
            for run in self.empty_steps(variants):
                run()
                found.append(len(variants))
            told = partial(progress, Stage.KERNELS) if progress else None
            compile_ahead(variants.missing, told)
            # Steps that need no other variants than those before them need not run.
            for run, before, after in zip(
                self.empty_steps(self.kernels), [0, *found], found, strict=False
            ):
                if after > before:
                    run()
            self.device.wait()
        total = self._decode.sizes + self._prompts.sizes
        captures = chain(self._decode.capture(self.kernels), self._prompts.capture(self.kernels))
        for done, _ in enumerate(captures):
            if progress:
                progress(Stage.STEPS, done + 1, total)

    def empty_steps(self, start: Start) -> Iterator[Callable[[], None]]:
        """Every kind of step, without tokens; `start` gets all launches that there can be."""
        yield from self._decode.runs(start)
        yield from self._prompts.runs(start)

    @property
    def prepared(self) -> Prepared:
        """What was compiled and captured, in all and since the model was ready."""
        compilations, captures = self.kernels.compilations, self.graphs.captures
        ready = self._at_ready
        return Prepared(
            compilations,
            captures,
            compilations - ready.compilations,
            captures - ready.captures,
        )

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Logits [outputs, vocabulary]."""
        tokens = len(batch.ids)
        if tokens > self.max_tokens:
            raise ModelError(f"a step takes at most {self.max_tokens} tokens, not {tokens}")
        with _at_work(self.device):
            if self._decode.takes(batch):
                return self._replay(batch).start(batch, [None] * tokens).result().logits
            return self._prompts.forward(batch, self.kernels)

    def watch(self, batch: Batch, before: Callable[[o.Op, Values], None]) -> None:
        """Run a batch kernel by kernel; `before` sees the values that an op is about to read."""
        with _at_work(self.device):
            step = self._prompts.send(batch, self.kernels)
            for number, op in enumerate(self._ops):
                before(op, self._values)
                self._program.run(step, slice(number, number + 1))
            self.device.wait()

    def accepts(self, plan: SamplingPlan) -> bool:
        """Whether the device can follow this plan."""
        return sampler_accepts(plan, self.vocabulary)

    def start(self, batch: Batch, plans: Sequence[SamplingPlan | None]) -> Started:
        """Run one new token of each of some sequences and sample their next; at most two at a time.

        An id of -1 - r is the token that row r of the step started before this one sampled.
        """
        assert self._decode.takes(batch), "one token of each sequence"
        with _at_work(self.device):
            return self._replay(batch).start(batch, plans)

    def _replay(self, batch: Batch) -> DecodeReplay:
        """The decode steps that a batch needs."""
        if batch.adapters is None:
            return self._decode
        assert self._adapted is not None, "an adapter was attached"
        return self._adapted

    def attach(self, slot: int, adapter: Adapter | None) -> None:
        """Keep an adapter in a slot, for the sequences of a batch that name it; None: free it.

        The first one has the decode steps with adapters compiled and captured, and so has one of a
        larger rank than all before.
        """
        with _at_work(self.device):
            if self._bank.attach(slot, adapter):
                replay = DecodeReplay(
                    self.device,
                    self._program,
                    self.inputs,
                    self._sampler,
                    self.graphs,
                    sequences=self._sequences,
                    adapted=True,
                )
                for run in () if self.device.interpreted else replay.runs(self.kernels):
                    run()
                self.device.wait()
                for _ in replay.capture(self.kernels):
                    pass
                self._adapted = replay
                self.device.wait()
                self._at_ready = self.prepared

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
