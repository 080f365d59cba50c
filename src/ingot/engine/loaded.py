"""LoadedModel: a model file made ready to run, and the one way to run a step of it.

A path and a few sizes come in. Everything that can be wrong with the file or the request is
told before the first token. Knows nothing of text, sampling or who asks for a step.
"""

import os
from collections.abc import Sequence
from enum import StrEnum
from threading import Lock
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ingot.backends.backend import Backend, choose_device
from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.cpu import CpuBackend
from ingot.config import MAX_THREADS, config
from ingot.engine import memory
from ingot.errors import (
    ConfigError,
    ContextLengthError,
    IngotError,
    MemoryShortageError,
    ModelError,
)
from ingot.gguf import GgmlType, GgufLoader
from ingot.graph.kv_layout import BLOCK_TOKENS, KV_TYPES, KvLayout
from ingot.kvcache import BlockPool
from ingot.kvcache import Sequence as KvSequence
from ingot.models import build_graph

DEFAULT_CONTEXT = 8192  # tokens, where the model allows as many

Ints = NDArray[np.int32]
Logits = NDArray[np.float32]


class Weights(StrEnum):
    """Where the weights are while the model runs."""

    MAP = "map"  # in the file, mapped: the system reads what is used and can drop it again
    LOCK = "lock"  # mapped, read now and kept in memory
    READ = "read"  # copied into memory of this process


class LoadedModel:
    """A model on a device with a cache for its sequences. Steps of several threads take turns."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        threads: int | None = None,
        context: int | None = None,
        kv_type: str = "f16",
        weights: str = Weights.MAP,
        sequences: int = 1,
        device: str = "cpu",
    ) -> None:
        """`context` is the longest sequence; there is cache for `sequences` of that length."""
        self.threads = _checked_threads(threads)
        self._gpu = choose_device(device)
        kind, place = _kv_type(kv_type), _weights(weights)
        self.file = GgufLoader(path, mapped=place is not Weights.READ)
        try:
            self.graph = build_graph(self.file)
            self.context = _checked_context(context, self.graph.context_length)
            self.layout = KvLayout.of(self.graph.kv_layers, kind)
            blocks = sequences * -(-self.context // BLOCK_TOKENS)
            if self._gpu is None:
                memory.require(
                    blocks * sum(group.block_bytes for group in self.layout.groups),
                    f"a cache for {sequences * self.context} tokens as {kind.name.lower()}",
                    "choose a smaller context or a smaller kv_type",
                )
            self._place_weights(place)
            self._backend: Backend | None = self._make_backend(blocks)
        except BaseException:
            self.file.close()
            raise
        self.step_tokens = self._backend.max_tokens
        self._pool = BlockPool(self.layout, blocks)
        self._stepping = Lock()

    def sequence(self) -> KvSequence:
        """A new, empty sequence; its owner closes it."""
        return KvSequence(self._pool)

    def fork(self, sequence: KvSequence) -> KvSequence:
        """A sequence that goes on from the same tokens; its owner closes it."""
        with self._stepping:
            if self._backend is None:
                raise ModelError(f"{self.file.path} is closed; open it again to go on")
            forked, copies = sequence.fork()
            for copy in copies:
                self._backend.copy_block(copy.group, copy.source, copy.target)
            return forked

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
        with self._stepping:
            if self._backend is None:
                raise ModelError(f"{self.file.path} is closed; open it again to go on")
            positions = [
                np.arange(sequence.length, sequence.length + len(new), dtype=np.int32)
                for sequence, new in zip(sequences, ids, strict=True)
            ]
            logits = self._backend.forward(
                Batch(
                    ids=np.concatenate(ids),
                    positions=np.concatenate(positions),
                    counts=np.array([len(new) for new in ids], np.int32),
                    tables=[
                        sequence.grow(len(new))
                        for sequence, new in zip(sequences, ids, strict=True)
                    ],
                    outputs=outputs,
                    phase=phase,
                )
            )
            for sequence in sequences:
                sequence.release_passed()
            return logits

    def check_ids(self, token_ids: Sequence[int] | NDArray[np.integer]) -> Ints:
        """The ids of a prompt as the backend wants them; what cannot be run is an error."""
        size = self.graph.vocabulary_size
        try:
            ids = np.asarray(token_ids)
        except ValueError:  # lists of different lengths
            raise ModelError("token ids must be one flat list of whole numbers") from None
        if ids.size == 0:
            raise ModelError("the prompt is empty: at least one token is needed")
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise ModelError("token ids must be one flat list of whole numbers")
        if ids.min() < 0 or ids.max() >= size:
            wrong = int(ids[(ids < 0) | (ids >= size)][0])
            raise ModelError(
                f"token id {wrong} is not in the vocabulary: ids go from 0 to {size - 1}"
            )
        if ids.size > self.context:
            raise ContextLengthError(
                f"the prompt has {ids.size} tokens and the context {self.context}; shorten the "
                f"prompt or open the model with a larger context (at most "
                f"{self.graph.context_length})"
            )
        return ids.astype(np.int32)

    def close(self) -> None:
        """Stop its threads and free its memory, after the step that may be running."""
        with self._stepping:
            self._backend = None
            self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _make_backend(self, blocks: int) -> Backend:
        if self._gpu is not None:
            from ingot.backends.gpu import GpuBackend  # noqa: PLC0415 (PyTorch, if asked for)

            return GpuBackend(
                self.graph,
                self.file,
                self.layout,
                blocks=blocks,
                context=self.context,
                device=self._gpu,
            )
        try:
            return CpuBackend(
                self.graph,
                self.file,
                self.layout,
                blocks=blocks,
                context=self.context,
                threads=self.threads,
            )
        except IngotError:
            raise
        except MemoryError as error:  # a limit of the process, which the system does not know
            raise MemoryShortageError(
                f"{self.file.path}: there is no memory for a context of {self.context} tokens; "
                "choose a smaller context"
            ) from error
        except ValueError as error:  # what the native program refuses
            raise ModelError(f"{self.file.path} cannot be run on the CPU: {error}") from error

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
    if not 1 <= context <= trained:
        raise ContextLengthError(f"context is {context}; this model allows 1 to {trained} tokens")
    return context


def _kv_type(name: str) -> GgmlType:
    for kind in KV_TYPES:
        if kind.name.lower() == name.lower():
            return kind
    known = ", ".join(kind.name.lower() for kind in KV_TYPES)
    raise ConfigError(f"kv_type is {name!r}; it must be one of {known}")


def _weights(name: str) -> Weights:
    try:
        return Weights(name)
    except ValueError:
        known = ", ".join(Weights)
        raise ConfigError(f"weights is {name!r}; it must be one of {known}") from None
