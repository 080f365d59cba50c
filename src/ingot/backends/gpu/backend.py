"""Build the launches of a planned model once, then run them for every batch.

A plan, the open file and the size of the cache come in; `forward` turns a batch into logits.
When the backend is made, weights are sent to the device, all kernels are compiled, and the steps of
all buckets are captured: none of that happens later.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
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
from ingot.backends.gpu.adapted_steps import AdaptedSteps
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
from ingot.backends.gpu.sampler import DevicePlans
from ingot.backends.gpu.sampler import accepts as sampler_accepts
from ingot.backends.gpu.upload import Uploader
from ingot.backends.gpu.values import Values
from ingot.backends.gpu.variants import Kernels, Start, Variants
from ingot.backends.gpu.weights import MatrixPlan, MatrixStore, Vectors, matrix_sources
from ingot.errors import MemoryShortageError, ModelError
from ingot.gguf import HasTensors
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
            "GPU memory ran out while the model was loading or running: another program has taken "
            "it, or adapters need more than is left; close other programs, or set cache_tokens or "
            "gpu_layers"
        ) from error


class GpuBackend:
    """A model ready to run on the GPU."""

    def __init__(
        self,
        plan: GpuPlan,
        model: HasTensors,
        *,
        blocks: int,
        states: int = 0,
        progress: OnOpening | None = None,
        weights: MatrixStore | None = None,
        lent: Collection[str] | None = None,
        pools: Sequence[torch.Tensor] | None = None,
    ) -> None:
        """Send the weights, decide all launches, compile and capture them.

        The cache has so many blocks, and the group of recurrent operations so many `states`.
        `weights`: those of another backend, which are sent already: all of them if it is for the
        same file, else those of the tensors that are `lent`, by name. `pools`: the cache of another
        backend, if both share it.
        """
        self.layout = plan.layout
        self.max_tokens = plan.tokens
        self.device = plan.device
        self.decoded = plan.decoded
        self.memory = DeviceMemory(plan.device.torch)
        self.vocabulary = plan.graph.logits.width
        self._at_ready = Prepared()
        with _at_work(plan.device):
            store = weights or MatrixStore(model)
            self.weights = store if lent is None else store.lend(model, lent)
            missing = self.weights.lacks(plan.matrices)
            there = sum(m.nbytes for m in plan.matrices) - sum(m.nbytes for m in missing)
            needed = plan.needs.total(blocks, states) if pools is None else plan.needs.total(0)
            require(needed - there, plan.device.free_memory())
            self._send(missing, plan, model, progress)
            self._prepare(plan, model, self.weights, blocks, states, pools)
            self._warm(progress)
            plan.device.wait()
        self._at_ready = self.prepared

    def _send(
        self,
        matrices: Sequence[MatrixPlan],
        plan: GpuPlan,
        model: HasTensors,
        progress: OnOpening | None,
    ) -> None:
        """Bring weights to the device."""
        if not matrices:
            return
        pool = self.memory.pool(sum(matrix.nbytes for matrix in matrices))
        sources = matrix_sources(matrices, model)
        size = sum(matrix.sent_bytes(model) for matrix in matrices)
        told = partial(progress, Stage.WEIGHTS) if progress else None
        with Uploader(plan.device, sources, size, told) as self.uploader:
            for matrix in matrices:
                self.weights.receive(matrix, self.uploader, pool)
        give_back()  # what packing needed

    def _prepare(
        self,
        plan: GpuPlan,
        model: HasTensors,
        matrices: MatrixStore,
        blocks: int,
        states: int,
        pools: Sequence[torch.Tensor] | None,
    ) -> None:
        """Ask for the memory of steps and decide all launches."""
        device, tokens = plan.device, plan.tokens
        # A sequence holds a block of every group of keys and values, or a state.
        sequences = max(1, min(tokens, blocks if plan.needs.block else states))
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
            pools=pools,
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
        self._kept = {value.name: value for op in plan.ops for value in op.outputs}
        self._bank, self._sampler = context.adapters, memory.sampler
        self._program, self.kernels, self.graphs = lower(context), Kernels(device), Graphs(device)
        self._decode = DecodeReplay(
            device,
            self._program,
            self.inputs,
            memory.sampler,
            self.graphs,
            sequences=plan.sequences,
        )
        self._prompts = PromptReplay(
            device,
            self._program,
            self.inputs,
            memory.sampler,
            self.graphs,
            self._bank,
            tokens=tokens,
            sequences=sequences,
            query_tile=plan.query_tile.rows,
            decodes=plan.sequences > 0,
            reads=plan.encoder is None,
        )
        replay = partial(
            DecodeReplay,
            device,
            self._program,
            self.inputs,
            memory.sampler,
            sequences=plan.sequences,
        )
        self._adapted = AdaptedSteps(device, self._bank, self._prompts, replay)

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
        """What was compiled and captured, in all, and in the way of steps since it was ready."""
        compilations, captures = self.kernels.compilations, self.graphs.captures
        ready = self._at_ready
        return self._adapted.made + Prepared(
            compilations,
            captures,
            compilations - ready.compilations,
            captures - ready.captures,
        )

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Logits [outputs, vocabulary]."""
        return self.start(batch, [None] * len(batch.outputs)).result().logits

    def watch(self, batch: Batch, before: Callable[[o.Op, Values], None]) -> None:
        """Run a batch kernel by kernel; `before` sees the values that an op is about to read."""
        with _at_work(self.device):
            step = self._prompts.send(batch, self.kernels)
            for number, op in enumerate(self._ops):
                before(op, self._values)
                self._program.run(step, slice(number, number + 1))
            self.device.wait()

    def launch(self, batch: Batch) -> torch.Tensor:
        """Run a batch without waiting: logits [outputs, width] on the device, until the next."""
        with _at_work(self.device):
            return self._prompts.launch(batch, self.kernels)

    def hand_over(self, batch: Batch) -> torch.Tensor:
        """Run a batch without waiting: rows of all its tokens on the device, until the next."""
        with _at_work(self.device):
            if self._decode.takes(batch):
                return self._replay(batch).launch(batch, [])
            return self._prompts.launch(batch, self.kernels)

    def put_rows(self, rows: torch.Tensor) -> None:
        """Give the next step the rows [tokens, width] with which its graph begins.

        They may be on another device.
        """
        first = self._ops[0]
        assert isinstance(first, o.TakeRows), "it begins with rows"
        with _at_work(self.device):
            self._values.tensor(first.out)[: rows.numel()].copy_(rows.reshape(-1))

    def kept(self, names: Sequence[str], rows: int) -> torch.Tensor:
        """Values of the last step that the plan keeps, as copies on the device, side by side.

        They have so many rows: one for each of its tokens, or for each of the wanted.
        """
        with _at_work(self.device):
            found = [self._values.rows(self._kept[name], rows) for name in names]
            return torch.cat(found, dim=1)

    def choose(self, batch: Batch, plans: DevicePlans) -> torch.Tensor:
        """Run a batch with one wanted row and sample a token of it, which stays on the device.

        The next step may take it as that of row 0.
        """
        with _at_work(self.device):
            self._prompts.launch(batch, self.kernels)
            self._sampler.sample(plans, self.kernels)
            return self.sampled

    def take_sampled(self, other: "GpuBackend") -> None:
        """Have the tokens that another backend sampled last, for the ids of the next step."""
        with _at_work(self.device):
            self._sampler.tokens.copy_(other._sampler.tokens, non_blocking=True)

    @property
    def sampled(self) -> torch.Tensor:
        """The token that row 0 of the last step sampled, on the device."""
        return self._sampler.tokens[:1]

    @property
    def last_logits(self) -> torch.Tensor:
        """The logits of row 0 of the last step, on the device."""
        return self._sampler.logits[0]

    @property
    def prompt_rows(self) -> int:
        """The number of a prompt chunk's first row, after those of all decode steps."""
        return self._sampler.prompt_rows

    def accepts(self, plan: SamplingPlan) -> bool:
        """Whether the device can follow this plan."""
        return sampler_accepts(plan, self.vocabulary)

    def start(self, batch: Batch, plans: Sequence[SamplingPlan | None]) -> Started:
        """Run a batch and sample tokens of its wanted rows.

        Two decode steps and one other step may run at a time, until their results are asked for.
        An id of -1 - r is the token that row r of the decode step before this one sampled, or from
        `prompt_rows` on a row of the prompt chunk before it.
        """
        tokens = len(batch.ids)
        if tokens > self.max_tokens:
            raise ModelError(f"a step takes at most {self.max_tokens} tokens, not {tokens}")
        if batch.rows is not None:
            self.put_rows(torch.from_numpy(batch.rows))
        with _at_work(self.device):
            if self._decode.takes(batch):
                return self._replay(batch).start(batch, plans)
            return self._prompts.start(batch, plans, self.kernels)

    def _replay(self, batch: Batch) -> DecodeReplay:
        """The decode steps that a batch needs."""
        if batch.adapters is None:
            return self._decode
        assert self._adapted.replay is not None, "an adapter was attached"
        return self._adapted.replay

    def attach(self, slot: int, adapter: Adapter | None) -> None:
        """Keep an adapter in a slot, for the sequences of a batch that name it; None: free it.

        The steps that it needs are ready if `prepare_adapters` was called for its rank.
        """
        if adapter is not None:
            adapter.require_no_experts()
            self.prepare_adapters(adapter.rank)
        with _at_work(self.device):
            self._adapted.take()
            self._bank.attach(slot, adapter)

    def prepare_adapters(self, rank: int) -> None:
        """Compile and capture steps for adapters of this rank, if that was not done before.

        Any thread may call it while steps run.
        """
        with _at_work(self.device):
            self._adapted.prepare(rank)

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
