"""LoadedModel: a model file made ready to run, and the one way to run a step of it.

In: a path and a few sizes. Everything that can be wrong with the file or the options is an error
before the first token. It does not know texts, samplers or requests.
"""

import os
from collections.abc import Sequence
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ingot.arrays import Bytes, Ints, Logits
from ingot.backends.backend import Backend, OnOpening, Prepared
from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.device_sampler import DeviceSampler, Finished, SamplingPlan, Started
from ingot.backends.precision import Precision
from ingot.config import MAX_THREADS, config
from ingot.convert import open_model
from ingot.engine.model import memory
from ingot.engine.model.placement import GpuLayers, Placed
from ingot.errors import ConfigError, ContextLengthError, ModelError
from ingot.graph.kv_layout import KvLayout
from ingot.graph.kv_type import KvType
from ingot.kvcache import BlockCopy, BlockPool, KvCache, Reuse, SequenceBlocks
from ingot.models import build_graph

DEFAULT_CONTEXT = 8192  # tokens, if the model allows as many
_SAMPLE = 256  # bytes
_NO_PROMPT = "a prompt is a text or one flat list of whole numbers, its token ids; batch takes many"

_E = TypeVar("_E", bound=StrEnum)


class Weights(StrEnum):
    """Where the weights are while the model runs."""

    MAP = "map"  # in the file, mapped: the system reads what is used and can drop it again
    LOCK = "lock"  # mapped, read now and kept in memory
    READ = "read"  # copied into the memory of this process


class LoadedModel:
    """A model on a device with memory for its sequences. One thread at a time."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        threads: int | None = None,
        context: int | None = None,
        kv_type: str = "f16",
        weights: str = Weights.MAP,
        precision: str | None = None,
        cache_tokens: int | None = None,
        reuse: str = Reuse.NONE,
        device: str = "cpu",
        gpu_layers: GpuLayers = None,
        sequences: int | None = None,
        progress: OnOpening | None = None,
    ) -> None:
        """`context` is the longest sequence; the cache has room for `cache_tokens` of all of them.

        By default these are four contexts, if they take no more than a quarter of the memory. The
        first `gpu_layers` layers run on the GPU, the others on the CPU; "auto": as many as fit.
        A GPU decodes at most `sequences` at once. `progress` is told what an opening on a GPU does.
        """
        self.threads = _checked_threads(threads)
        kind = _choice(KvType, "kv_type", kv_type.lower())
        place = _choice(Weights, "weights", weights)
        chosen = config().precision if precision is None else precision
        self.precision = _choice(Precision, "precision", chosen)
        found = _choice(Reuse, "reuse", reuse)
        self.file = open_model(path, mapped=place is not Weights.READ)
        try:
            self.graph = build_graph(self.file, context or DEFAULT_CONTEXT)
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
                precision=self.precision,
                device=device,
                gpu_layers=gpu_layers,
                sequences=sequences,
                progress=progress,
            )
            self.file.check()  # that what was read is what was checked
        except BaseException:
            self.file.close()
            raise
        self._backend: Backend | None = placed.backend
        self.device_sampler: DeviceSampler | None = placed.device_sampler
        self.gpu = placed.gpu  # None: all layers are on the CPU
        self.why_cpu = placed.why_cpu  # if the device is "auto"
        self._gpu_backend = placed.gpu_backend
        self.decode_sequences = placed.decode_sequences  # the most of a decode step
        self._give_back = placed.give_back
        self._reads_file = self.file.is_mapped and not self.on_gpu
        self.step_tokens = placed.backend.max_tokens
        self.cache = KvCache(self.layout, placed.size.blocks, found, placed.size.states)

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

    @property
    def prepared(self) -> Prepared:
        """What was compiled and captured for the GPU."""
        return Prepared() if self._gpu_backend is None else self._gpu_backend.prepared

    @property
    def pool(self) -> BlockPool:
        """The blocks of the cache."""
        return self.cache.pool

    def sequence(self) -> SequenceBlocks:
        """A new, empty sequence that shares no blocks; the caller closes it."""
        return SequenceBlocks(self.pool)

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
    ) -> Logits:
        """Run the next tokens of some sequences: logits [outputs, vocabulary].

        `outputs` counts through the tokens of all sequences in order.
        """
        for sequence, new in zip(sequences, ids, strict=True):
            sequence.grow(len(new))
        logits = self.forward(build_batch(sequences, ids, outputs, phase))
        for sequence in sequences:
            sequence.release_passed()
        return logits

    def forward(self, batch: Batch) -> Logits:
        """Run a batch: logits [outputs, vocabulary]."""
        logits = self._running.forward(batch)
        self.check_file()
        return logits

    def start(self, batch: Batch, plans: Sequence[SamplingPlan | None]) -> Started:
        """The same without waiting, if the device samples the tokens of some of the rows."""
        if self.device_sampler is None or not any(plans):
            return Finished(self.forward(batch))
        return self.device_sampler.start(batch, plans)

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

    def require_logits(self) -> None:
        """Raise an error if the model generates no text."""
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

    def check_ids(self, token_ids: Sequence[int] | NDArray[np.integer]) -> Ints:
        """The ids of a prompt as the backend wants them; what cannot be run is an error."""
        size = self.graph.vocabulary_size
        if len(token_ids) > self.context:  # before an array is made of them
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
        self._backend = self.device_sampler = self._gpu_backend = None
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

    def _place_weights(self, place: Weights) -> None:
        size = sum(tensor.nbytes for tensor in self.file.tensors.values())
        if place is Weights.MAP:
            if size <= memory.available():  # or else reading the end would drop the beginning
                self.file.prefetch()
            return
        memory.require(
            size, f"weights={place.value!r}", "take weights='map', which uses the mapped file"
        )
        if place is Weights.LOCK:
            self.file.lock()


def build_batch(
    sequences: Sequence[SequenceBlocks],
    ids: Sequence[Ints],
    outputs: Ints,
    phase: ExecutionPhase,
    types: Ints | None = None,
) -> Batch:
    """The last tokens of some sequences, which have grown already."""
    positions = [
        np.arange(sequence.length - len(new), sequence.length, dtype=np.int32)
        for sequence, new in zip(sequences, ids, strict=True)
    ]
    return Batch(
        ids=np.concatenate(ids),
        positions=np.concatenate(positions),
        counts=np.array([len(new) for new in ids], np.int32),
        tables=[sequence.tables for sequence in sequences],
        outputs=outputs,
        phase=phase,
        types=types,
    )


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


def _choice(kind: type[_E], field: str, name: str) -> _E:
    try:
        return kind(name)
    except ValueError:
        raise ConfigError(f"{field} is {name!r}; it must be one of {', '.join(kind)}") from None
