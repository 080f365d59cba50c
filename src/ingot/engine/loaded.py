"""LoadedModel: a model file made ready to run, and the one way to run a step of it.

A path and a few sizes come in. Everything that can be wrong with the file or the request is
told before the first token. Knows nothing of text, sampling or who asks for a step.
"""

import os
from collections.abc import Sequence
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b
from types import TracebackType
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ingot.backends.backend import Backend, OnSent
from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.device_sampler import DeviceSampler, Finished, SamplingPlan, Started
from ingot.config import MAX_THREADS, config
from ingot.engine import memory
from ingot.engine.placing import GpuLayers, Placed
from ingot.errors import ConfigError, ContextLengthError, ModelError
from ingot.gguf import GgufLoader
from ingot.graph.kv_layout import KvLayout
from ingot.graph.kv_type import KvType
from ingot.kvcache import BlockCopy, BlockPool, KvCache, Reuse
from ingot.kvcache import Sequence as KvSequence
from ingot.models import build_graph

DEFAULT_CONTEXT = 8192  # tokens, where the model allows as many
_SAMPLE = 256  # bytes
_NO_PROMPT = "a prompt is a text or one flat list of whole numbers, its token ids; batch takes many"

_E = TypeVar("_E", bound=StrEnum)
Ints = NDArray[np.int32]
Logits = NDArray[np.float32]


class Weights(StrEnum):
    """Where the weights are while the model runs."""

    MAP = "map"  # in the file, mapped: the system reads what is used and can drop it again
    LOCK = "lock"  # mapped, read now and kept in memory
    READ = "read"  # copied into memory of this process


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
        cache_tokens: int | None = None,
        reuse: str = Reuse.NONE,
        device: str = "cpu",
        gpu_layers: GpuLayers = None,
        progress: OnSent | None = None,
    ) -> None:
        """`context` is the longest sequence; the cache is for `cache_tokens` of all of them.

        By default these are four contexts, if they take no more than a quarter of the memory.
        `gpu_layers` of the first layers run on the GPU, the others on the CPU; "auto": as many as
        fit. `progress` is told how many bytes of the weights have been sent there.
        """
        self.threads = _checked_threads(threads)
        kind = _choice(KvType, "kv_type", kv_type.lower())
        place = _choice(Weights, "weights", weights)
        found = _choice(Reuse, "reuse", reuse)
        self.file = GgufLoader(path, mapped=place is not Weights.READ)
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
                device=device,
                gpu_layers=gpu_layers,
                progress=progress,
            )
            self.file.check()  # that what was read is what was checked
        except BaseException:
            self.file.close()
            raise
        self._backend: Backend | None = placed.backend
        self.device_sampler: DeviceSampler | None = placed.device_sampler
        self.gpu = placed.gpu  # None: all of it is on the CPU
        self.why_cpu = placed.why_cpu  # where the device is "auto"
        self._give_back = placed.give_back
        self._reads_file = self.file.is_mapped and not self.on_gpu
        self.step_tokens = placed.backend.max_tokens
        self.cache = KvCache(self.layout, placed.size.blocks, found, placed.size.states)

    @property
    def placement(self) -> str | None:
        """What became of it in a line, if it was to run on a GPU, or might have."""
        if self.gpu is not None:
            return self.gpu.remark
        return f"all layers on the CPU: {self.why_cpu}" if self.why_cpu else None

    @property
    def on_gpu(self) -> bool:
        """Whether nothing of it runs on the CPU."""
        return self.gpu is not None and self.gpu.whole

    @property
    def pool(self) -> BlockPool:
        """The blocks of the cache."""
        return self.cache.pool

    def sequence(self) -> KvSequence:
        """A new, empty sequence that shares nothing; its owner closes it."""
        return KvSequence(self.pool)

    def copy_blocks(self, copies: Sequence[BlockCopy]) -> None:
        """Do what a fork asks for."""
        for copy in copies:
            self._running.copy_block(copy.group, copy.source, copy.target)

    def read_block(self, group: int, index: int) -> NDArray[np.uint8]:
        """The bytes of a block of the cache."""
        return self._running.read_block(group, index)

    def write_block(self, group: int, index: int, data: NDArray[np.uint8]) -> None:
        """Give a block of the cache these bytes."""
        self._running.write_block(group, index, data)

    def step(
        self,
        sequences: Sequence[KvSequence],
        ids: Sequence[Ints],
        outputs: Ints,
        phase: ExecutionPhase,
    ) -> Logits:
        """Run the next tokens of some sequences: logits [outputs, vocabulary].

        `outputs` counts through the tokens of all sequences in order.
        """
        for sequence, new in zip(sequences, ids, strict=True):
            sequence.grow(len(new))
        logits = self.forward(sequences, ids, outputs, phase)
        for sequence in sequences:
            sequence.release_passed()
        return logits

    def forward(
        self,
        sequences: Sequence[KvSequence],
        ids: Sequence[Ints],
        outputs: Ints,
        phase: ExecutionPhase,
    ) -> Logits:
        """The same for sequences that have grown already: the new tokens are their last."""
        logits = self._running.forward(_batch(sequences, ids, outputs, phase))
        self.check_file()
        return logits

    def start(
        self,
        sequences: Sequence[KvSequence],
        ids: Sequence[Ints],
        outputs: Ints,
        phase: ExecutionPhase,
        choices: Sequence[SamplingPlan | None],
    ) -> Started:
        """The same without waiting, if the backend chooses the tokens of some of the rows."""
        if self.device_sampler is None or not any(choices):
            return Finished(self.forward(sequences, ids, outputs, phase))
        return self.device_sampler.start(_batch(sequences, ids, outputs, phase), choices)

    @property
    def change(self) -> str | None:
        """What somebody did to the file, if weights are still read from it; None: nothing known."""
        return self.file.change if self._reads_file else None

    def check_file(self) -> None:
        """Raise `ModelChangedError` if what was just computed may come from changed weights."""
        if self._reads_file:
            self.file.check()

    @cached_property
    def fingerprint(self) -> str:
        """Tells this model from others: its tensors, and some bytes of each."""
        digest = blake2b(digest_size=16)
        if self.gpu and self.layout.type.block_size > 1:  # which lies otherwise there
            digest.update(b"gpu" if self.gpu.whole else f"gpu {self.gpu.layers}".encode())
        for name, tensor in self.file.tensors.items():
            digest.update(f"{name} {tensor.type.name} {tensor.shape}".encode())
            digest.update(tensor.data[:_SAMPLE].tobytes() + tensor.data[-_SAMPLE:].tobytes())
        self.check_file()
        return digest.hexdigest()

    def require_logits(self) -> None:
        """Raise an error if the model writes no text."""
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
                f"{self.graph.context_length})"
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
        """Stop its threads and free its memory."""
        self._backend = self.device_sampler = None
        self.file.close()
        if self._give_back is not None:
            self._give_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _running(self) -> Backend:
        if self._backend is None:
            raise ModelError(f"{self.file.path} is closed; open it again to go on")
        return self._backend

    def _place_weights(self, place: Weights) -> None:
        size = sum(tensor.nbytes for tensor in self.file.tensors.values())
        if place is Weights.MAP:
            if size <= memory.available():  # or else reading the end would drop the beginning
                self.file.prefetch()
            return
        memory.require(
            size, f"weights={place.value!r}", "take weights='map', which needs none of its own"
        )
        if place is Weights.LOCK:
            self.file.lock()


def _batch(
    sequences: Sequence[KvSequence], ids: Sequence[Ints], outputs: Ints, phase: ExecutionPhase
) -> Batch:
    """The last tokens of some sequences."""
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
