"""LoadedModel: a model file made ready to run, and the one way to run a step of it.

In: a path and a few sizes. Everything that can be wrong with the file or the options is an error
before the first token. It does not know texts, samplers or requests.
"""

import logging
import os
from collections.abc import Sequence
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Self, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from ingot.adapters import Adapter, open_adapter
from ingot.arrays import Bytes, Floats, HiddenRows, Ints, Logits
from ingot.backends.backend import Backend, OnOpening, Prepared
from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.cpu import Copies, Repacking
from ingot.backends.cpu.seats import Numa, seats_here
from ingot.backends.device_sampler import DeviceSampler, Finished, SamplingPlan, Started
from ingot.backends.precision import Precision
from ingot.config import MAX_THREADS, config
from ingot.convert import open_model
from ingot.engine.model import memory
from ingot.engine.model.placement import GpuLayers, Placed
from ingot.errors import ConfigError, ContextLengthError, MemoryShortageError, ModelError
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph
from ingot.graph import ops as o
from ingot.graph.kv_layout import KvLayout
from ingot.graph.kv_type import KvType
from ingot.kvcache import BlockCopy, BlockPool, KvCache, Reuse, SequenceBlocks
from ingot.models import build_graph, mtp_layer

if TYPE_CHECKING:
    from ingot.backends.gpu import GpuBackend

_log = logging.getLogger("ingot.engine")
DEFAULT_CONTEXT = 8192  # tokens, if the model allows as many
_SAMPLE = 256  # bytes
_NOT_PLACED = (
    "numa=%r places no weights, because none are repacked; weights='repack' says what that takes"
)
_SPARE = 2  # times what copies of matrices take: memory that must be available, unless asked for
_NO_PROMPT = "a prompt is a text or one flat list of whole numbers, its token ids; batch takes many"

_E = TypeVar("_E", bound=StrEnum)


class Weights(StrEnum):
    """Where the weights are while the model runs."""

    AUTO = "auto"  # repacked if there is memory for them twice, else mapped
    REPACK = "repack"  # mapped, and copied into memory in the order in which the CPU reads them
    MAP = "map"  # in the file, mapped: the system reads what is used and can drop it again
    LOCK = "lock"  # mapped, read now and kept in memory
    READ = "read"  # copied into the memory of this process as they are


class LoadedModel:
    """A model on a device with memory for its sequences. One thread at a time."""

    repacking: Repacking | None = None
    copies: Copies | None = None  # of matrices, that `repacking` makes
    # What else runs on the GPU for it: an encoder, and layers that guess.
    beside: "tuple[GpuBackend, ...]" = ()
    _adaptable: "tuple[GpuBackend, ...]" = ()  # what adapters change

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        threads: int | None = None,
        context: int | None = None,
        kv_type: str = "f16",
        weights: str = Weights.AUTO,
        precision: str | None = None,
        numa: str = Numa.AUTO,
        pin_threads: bool = False,
        cache_tokens: int | None = None,
        reuse: str = Reuse.NONE,
        device: str = "cpu",
        gpu_layers: GpuLayers = None,
        gpu_split: Sequence[float] | None = None,
        sequences: int | None = None,
        mtp: bool | None = False,
        hidden_layers: Sequence[int] = (),
        progress: OnOpening | None = None,
    ) -> None:
        """`context` is the longest sequence; the cache has room for `cache_tokens` of all of them.

        By default these are four contexts, if they take no more than a quarter of the memory. The
        first `gpu_layers` layers run on the GPU, the others on the CPU; "auto": as many as fit.
        `gpu_split`: the shares of several GPUs in these layers.
        A GPU decodes at most `sequences` at once; None: what its memory allows. `mtp`: keep the
        hidden states that multi-token prediction needs; None: if the file has layers for it.
        `hidden_layers`: keep what these layers read, for a draft; the number after the last one
        stands for what that gives. `progress` is told what an opening on a GPU does.
        """
        self.threads = _checked_threads(threads)
        kind = _choice(KvType, "kv_type", kv_type.lower())
        place = _choice(Weights, "weights", weights)
        chosen = config().precision if precision is None else precision
        self.precision = _choice(Precision, "precision", chosen)
        found = _choice(Reuse, "reuse", reuse)
        seats = seats_here(self.threads, _choice(Numa, "numa", numa), pin=pin_threads)
        self.file = open_model(path, mapped=place is not Weights.READ)
        try:
            has_mtp = _checked_mtp(mtp, self.file)
            longest = context or DEFAULT_CONTEXT
            self.graph = build_graph(self.file, longest, every_row=has_mtp)
            if len(self.graph.streams) - 1 in hidden_layers:  # rows of all tokens, of the last one
                self.graph = build_graph(self.file, longest, every_row=True)
            self._hidden = self._streams(hidden_layers)
            if gpu_split is not None and (mtp or hidden_layers):
                raise ConfigError(
                    "guesses from hidden states (multi-token prediction, EAGLE-3) need all layers "
                    "on one GPU: leave gpu_split out, or take speculation='auto'"
                )
            if has_mtp:
                self._hidden = (_before_selection(self.graph),)
            self.context = _checked_context(context, self.graph.context_length)
            self.layout = KvLayout.of(self.graph.kv_layers, kind, self.graph.states)
            self._place_weights(place)
            placed = Placed(
                self.graph,
                self.file,
                self.layout,
                context=self.context,
                cache_tokens=cache_tokens,
                threads=self.threads,
                seats=seats,
                precision=self.precision,
                device=device,
                gpu_layers=gpu_layers,
                gpu_split=gpu_split,
                sequences=sequences,
                progress=progress,
                keep=[value.name for value in self._hidden],
            )
            self.file.check()  # that what was read is what was checked
            self.copies = self._plan_copies(place, placed, numa)
            if placed.gpu is not None and not placed.gpu.alone:
                self._hidden = _hidden_of_parts(self._hidden, asked=bool(mtp or hidden_layers))
        except BaseException:
            self.file.close()
            raise
        self._backend: Backend | None = placed.backend
        self._cpu_backend = placed.cpu_backend
        self.device_sampler: DeviceSampler | None = placed.device_sampler
        self.gpu = placed.gpu  # None: all layers are on the CPU
        self.why_cpu = placed.why_cpu  # if the device is "auto"
        self._gpu_backend = placed.gpu_backend
        if placed.gpu_encoder is not None:
            self.beside = (placed.gpu_encoder,)
        self.beside += placed.gpu_parts
        model = () if placed.gpu_backend is None else (placed.gpu_backend,)
        self._adaptable = (*model, *self.beside)
        self.decode_sequences = placed.decode_sequences  # the most of a decode step
        self.default_running = placed.default_running  # sequences at once
        self._give_back = placed.give_back
        self._reads_file = self.file.is_mapped and not self.on_gpu
        self.step_tokens = placed.backend.max_tokens
        self.cache = KvCache(self.layout, placed.size.blocks, found, placed.size.states)
        if self.copies is not None and placed.cpu_backend is not None:
            self.repacking = Repacking(
                placed.cpu_backend,
                is_intact=lambda: self.file.change is None,
                on_end=self.file.release if self.copies.replace else lambda: None,
            )

    @property
    def placement(self) -> str | None:
        """One line about where the layers are, if a GPU was asked for or looked for."""
        if self.gpu is not None:
            return self.gpu.remark
        return f"all layers on the CPU: {self.why_cpu}" if self.why_cpu else None

    @property
    def on_gpu(self) -> bool:
        """Whether all layers run on the GPU."""
        return self.gpu is not None and self.gpu.whole

    def own_program(self, graph: ComputationGraph) -> Backend | None:
        """What runs the model, if some of it is on a GPU and this is the model's graph."""
        return self._backend if self.gpu is not None and graph == self.graph else None

    def add_gpu_program(
        self, graph: ComputationGraph, layout: KvLayout, *, blocks: int, states: int
    ) -> "GpuBackend | None":
        """A backend for another graph of the file, beside the model's; None if there cannot be one.

        All layers must be on the GPU, and there must be memory.
        """
        if self._gpu_backend is None or not self.on_gpu:
            return None
        from ingot.engine.model.gpu_programs import add_program  # noqa: PLC0415 (PyTorch)

        try:
            made = add_program(
                self._gpu_backend,
                graph,
                self.file,
                layout,
                context=self.context,
                blocks=blocks,
                states=states,
            )
        except (MemoryShortageError, ModelError):  # no memory, or no kernel
            return None
        if made is not None:
            self.beside += (made,)
        return made

    @property
    def gpu_program(self) -> "GpuBackend":
        """What runs the model, if all of it is on a GPU."""
        assert self._gpu_backend is not None, "it is on a GPU"
        return self._gpu_backend

    @property
    def prepared(self) -> Prepared:
        """What was compiled and captured for the GPU."""
        model = (self._gpu_backend,) if self._gpu_backend else ()
        return sum((each.prepared for each in (*model, *self.beside)), Prepared())

    @property
    def pool(self) -> BlockPool:
        """The blocks of the cache."""
        return self.cache.pool

    def sequence(self) -> SequenceBlocks:
        """A new, empty sequence that shares no blocks; the caller closes it."""
        return SequenceBlocks(self.pool, expanded=True)

    def read_adapter(self, path: str | os.PathLike[str]) -> Adapter:
        """Open an adapter for this model."""
        adapter = open_adapter(path, self.file, self.graph)
        if self.gpu is not None:
            adapter.require_no_experts()
        return adapter

    def prepare_adapters(self, rank: int) -> None:
        """Have GPUs make ready what steps with adapters of this rank need.

        Any thread may call it while steps run.
        """
        for program in self._adaptable:
            program.prepare_adapters(rank)

    def attach(self, slot: int, adapter: Adapter | None) -> None:
        """Keep an adapter in a slot, between two steps; None: free the slot."""
        self._running.attach(slot, adapter)

    def copy_blocks(self, copies: Sequence[BlockCopy]) -> None:
        """Copy the blocks of a fork."""
        for copy in copies:
            self._running.copy_block(copy.group, copy.source, copy.target)

    def read_block(self, group: int, index: int) -> Bytes:
        """The bytes of a block of the cache."""
        return self._running.read_block(group, index)

    def write_block(self, group: int, index: int, data: Bytes) -> None:
        """Write the bytes of a block of the cache."""
        self._running.write_block(group, index, data)

    def step(
        self,
        sequences: Sequence[SequenceBlocks],
        ids: Sequence[Ints],
        outputs: Ints,
        phase: ExecutionPhase,
        encoded: Ints | None = None,
    ) -> Logits:
        """Run the next tokens of some sequences: logits [outputs, vocabulary].

        `outputs` counts through the tokens of all sequences in order. `encoded`: how many tokens of
        each sequence an encoder has read, when its decoder runs.
        """
        for sequence, new in zip(sequences, ids, strict=True):
            sequence.grow(len(new))
        counts = np.array([len(new) for new in ids], np.int32)
        batch = build_batch(sequences, np.concatenate(ids), counts, outputs, phase, encoded=encoded)
        logits = self.forward(batch)
        for sequence in sequences:
            sequence.release_passed()
        return logits

    def forward(self, batch: Batch) -> Logits:
        """Run a batch: logits [outputs, vocabulary]."""
        logits = self._running.forward(batch)
        self.check_file()
        return logits

    def start(self, batch: Batch, plans: Sequence[SamplingPlan | None]) -> Started:
        """The same without waiting, if a device samples tokens; it does for rows with plans."""
        by_encoder = batch.encoded is not None and batch.phase is ExecutionPhase.PROMPT
        if self.device_sampler is None or by_encoder:
            return Finished(self.forward(batch))
        return self.device_sampler.start(batch, plans)

    @property
    def keeps_hidden(self) -> bool:
        """Whether `last_hidden` tells hidden states."""
        return bool(self._hidden)

    def last_hidden(self, tokens: int) -> HiddenRows:
        """The hidden states [tokens, width] of the last step, which had so many tokens.

        For multi-token prediction: what the output matrix takes. For a draft: what some layers
        read, side by side. Of a model on a GPU they are a copy there; nobody waits for them.
        """
        if self._gpu_backend is not None:
            return self._gpu_backend.kept([value.name for value in self._hidden], tokens)
        assert self._cpu_backend is not None, "it is open"
        kept = []
        for value in self._hidden:
            kept.append(np.empty((tokens, value.width), np.float32))
            self._cpu_backend.kept(value.name, tokens, kept[-1])
        return kept[0] if len(kept) == 1 else np.concatenate(kept, axis=1)

    @property
    def change(self) -> str | None:
        """How the file was changed, if weights are still read from it; None: it was not."""
        return self.file.change if self._reads_file else None

    def check_file(self) -> None:
        """Raise `ModelChangedError` if what was just computed may come from changed weights."""
        if self._reads_file:
            self.file.check()

    @cached_property
    def fingerprint(self) -> str:
        """Identifies the model: a digest of its tensors' names, types and some bytes of each."""
        digest = blake2b(digest_size=16)
        if self.gpu and self.layout.type.block_size > 1:  # blocks have another layout there
            digest.update(b"gpu" if self.gpu.whole else f"gpu {self.gpu.layers}".encode())
        for name, tensor in self.file.tensors.items():
            digest.update(f"{name} {tensor.type.name} {tensor.shape}".encode())
            digest.update(tensor.data[:_SAMPLE].tobytes() + tensor.data[-_SAMPLE:].tobytes())
        self.check_file()
        return digest.hexdigest()

    def require_logits(self, *, of_prompts: bool = False) -> None:
        """Raise an error if the model generates no text, or has no logits of a prompt's tokens."""
        if self.graph.scores:
            raise ModelError(
                f"{self.file.path} is a reranker: it scores texts for a query (LLM.rerank), "
                "and writes none"
            )
        if self.graph.hidden:
            raise ModelError(
                f"{self.file.path} is an encoder: it has a row for every token of a text, "
                "and writes none"
            )
        if of_prompts and self.graph.encoder is not None:
            raise ModelError(
                f"{self.file.path} is an encoder-decoder: it has logits of what it writes, and "
                "none of the tokens of a prompt"
            )

    def check_ids(self, token_ids: Sequence[int] | NDArray[np.integer]) -> Ints:
        """The ids of a prompt as the backend wants them; what cannot be run is an error."""
        size = self.graph.vocabulary_size
        # What a decoder begins with is no part of the prompt.
        room = self.context - (self.graph.start_token is not None)
        if len(token_ids) > room:  # before an array is made of them
            raise ContextLengthError(
                f"the prompt has {len(token_ids)} tokens and the context {self.context}; shorten "
                f"the prompt or open the model with a larger context (at most "
                f"{self.graph.context_length})",
                tokens=len(token_ids),
                context=self.context,
            )
        try:
            ids = np.asarray(token_ids)
        except ValueError:  # lists of different lengths
            raise ModelError(_NO_PROMPT) from None
        if ids.size == 0:
            raise ModelError("the prompt is empty: at least one token is needed")
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise ModelError(_NO_PROMPT)
        if ids.min() < 0 or ids.max() >= size:
            wrong = int(ids[(ids < 0) | (ids >= size)][0])
            raise ModelError(
                f"token id {wrong} is not in the vocabulary: ids go from 0 to {size - 1}"
            )
        return ids.astype(np.int32)

    def close(self) -> None:
        """Stop the threads and free the memory."""
        if self.repacking is not None:
            self.repacking.close()
            self.repacking = None
        self._backend = self.device_sampler = self._gpu_backend = self._cpu_backend = None
        self.beside = self._adaptable = ()
        self.file.close()
        if self._give_back is not None:
            self._give_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _running(self) -> Backend:
        if self._backend is None:
            raise ModelError(f"{self.file.path} is closed; open it again")
        return self._backend

    def _streams(self, layers: Sequence[int]) -> tuple[o.Value, ...]:
        """What some layers read; an error if there are no such layers."""
        streams = self.graph.streams
        for layer in layers:
            if not 0 <= layer < len(streams):
                raise ConfigError(
                    f"the draft reads the hidden states before layer {layer} of its target, and "
                    f"{self.file.path} has {len(streams) - 1} layers; take the draft that was made "
                    "for this model"
                )
        return tuple(streams[layer] for layer in layers)

    def _place_weights(self, place: Weights) -> None:
        size = sum(tensor.nbytes for tensor in self.file.tensors.values())
        if place in {Weights.AUTO, Weights.REPACK, Weights.MAP}:
            if size <= memory.available():  # or else reading the end would drop the beginning
                self.file.prefetch()
            return
        memory.require(
            size, f"weights={place.value!r}", "take weights='map', which uses the mapped file"
        )
        if place is Weights.LOCK:
            self.file.lock()

    def _plan_copies(self, place: Weights, placed: Placed, numa: str) -> Copies | None:
        """The copies that fit; without any, NUMA nodes have nothing of their own."""
        copies = self._copies_that_fit(place, placed)
        if copies is None and numa in {Numa.SPLIT, Numa.REPLICATE}:
            _log.warning(_NOT_PLACED, numa)
        return copies

    def _copies_that_fit(self, place: Weights, placed: Placed) -> Copies | None:
        """Copies of matrices, if they were asked for or there is memory to spare.

        What the cache and the arena are going to take is not free, though nobody has it yet.
        """
        if placed.cpu_backend is None or place not in {Weights.AUTO, Weights.REPACK}:
            return None
        copies = Copies.of(placed.cpu_backend, mapped=self.file.is_mapped)
        if copies is None:
            return None
        if place is Weights.REPACK:
            memory.require(
                copies.size + placed.untouched,
                "weights='repack', with the KV cache and the values of a step,",
                "take weights='map', which uses the mapped file, or a smaller context or cache",
            )
        elif _SPARE * copies.size > memory.available() - placed.untouched:
            return None
        return copies


def build_batch(
    sequences: Sequence[SequenceBlocks],
    ids: Ints,
    counts: Ints,
    outputs: Ints,
    phase: ExecutionPhase,
    types: Ints | None = None,
    adapters: Sequence[tuple[int, float] | None] = (),
    rows: Floats | None = None,
    encoded: Ints | None = None,
) -> Batch:
    """The last tokens of some sequences, `counts` of each, which have grown already.

    `adapters` are the slot and the scale of each sequence, or none at all. `rows` are for a graph
    that begins with them. `encoded`: how many tokens of each an encoder has read.
    """
    lengths = np.fromiter((sequence.length for sequence in sequences), np.int32, len(sequences))
    # A token's position is its place in `ids`, moved by that of its sequence.
    moved = lengths - np.cumsum(counts, dtype=np.int32)
    return Batch(
        ids=ids,
        positions=np.arange(len(ids), dtype=np.int32) + np.repeat(moved, counts),
        counts=counts,
        tables=[sequence.tables for sequence in sequences],
        outputs=outputs,
        phase=phase,
        types=types,
        rows=rows,
        encoded=encoded,
        expanded=_expanded(sequences) if phase is ExecutionPhase.PROMPT else None,
        **batch_adapters(adapters),
    )


def _expanded(sequences: Sequence[SequenceBlocks]) -> Ints | None:
    if not any(sequence.expanded for sequence in sequences):
        return None
    return np.array([sequence.expanded for sequence in sequences], np.int32)


class BatchAdapters(TypedDict, total=False):
    """The fields of a batch that has adapters."""

    adapters: Ints
    adapter_scales: Floats


def batch_adapters(uses: Sequence[tuple[int, float] | None]) -> BatchAdapters:
    """The adapters of some sequences, as fields of a batch."""
    if not any(uses):
        return {}
    return {
        "adapters": np.array([use[0] if use else -1 for use in uses], np.int32),
        "adapter_scales": np.array([use[1] if use else 0.0 for use in uses], np.float32),
    }


def _checked_threads(threads: int | None) -> int:
    if threads is None:
        return config().threads
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= MAX_THREADS:
        raise ConfigError(f"threads is {threads!r}; it must be a number from 1 to {MAX_THREADS}")
    config()  # chooses the instruction set
    return threads


def _checked_context(context: int | None, trained: int) -> int:
    if context is None:
        return min(trained, DEFAULT_CONTEXT)
    if not isinstance(context, int) or not 1 <= context <= trained:
        raise ContextLengthError(f"context is {context!r}; this model allows 1 to {trained} tokens")
    return context


def _checked_mtp(mtp: bool | None, file: GgufLoader) -> bool:
    """Whether to keep hidden states for multi-token prediction; an error if it is impossible."""
    can = mtp_layer(file) is not None
    if mtp and not can:
        raise ConfigError(
            f"{file.path} has no layers for multi-token prediction (nextn); take a file that has, "
            "or speculation='auto', which also guesses from the text itself"
        )
    return can and mtp is not False


def _hidden_of_parts(hidden: tuple[o.Value, ...], *, asked: bool) -> tuple[o.Value, ...]:
    """What is kept of a model that is on two devices: nothing, and an error if it was `asked`."""
    if hidden and asked:
        raise ConfigError(
            "guesses from hidden states (multi-token prediction, EAGLE-3) need all layers on one "
            "device, and the GPU has only some of them; take device='cpu', a smaller context, or "
            "speculation='auto'"
        )
    return ()


def _before_selection(graph: ComputationGraph) -> o.Value:
    """The last value with a row for every token."""
    return next(op.source for op in graph.ops if isinstance(op, o.Select))


def _choice(kind: type[_E], field: str, name: str) -> _E:
    try:
        return kind(name)
    except ValueError:
        raise ConfigError(f"{field} is {name!r}; it must be one of {', '.join(kind)}") from None
