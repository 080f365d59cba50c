"""An Ingot model driven step by step below its public API, with the calls of `peer.Peer`."""

import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingot.api import LLM
from ingot.backends.batch import Batch, ExecutionPhase
from ingot.kvcache import Sequence


class Stepper:
    """A model whose steps are made and timed one by one."""

    def __init__(self, model: Path, *, threads: int, context: int, sequences: int = 1) -> None:
        self._llm = LLM(model, threads=threads, context=context * sequences)
        self._backend, self._pool = self._llm._backend, self._llm._pool
        self._vocabulary = self._llm.graph.vocabulary_size
        self._kept: list[Sequence] = []

    def prompt(self, tokens: int) -> float:
        """Seconds a prompt takes on an empty context."""
        self._drop()
        sequence = Sequence(self._pool)
        started = time.perf_counter()
        self._read(sequence, tokens, wanted=True)
        seconds = time.perf_counter() - started
        sequence.close()
        return seconds

    def generate(self, tokens: int, depth: int = 0, sequences: int = 1) -> float:
        """Seconds that so many steps take after `depth` tokens and what earlier calls added."""
        if len(self._kept) != sequences or any(s.length < depth for s in self._kept):
            self._drop()
            self._kept = [Sequence(self._pool) for _ in range(sequences)]
            for sequence in self._kept:
                self._read(sequence, depth, wanted=False)
        counts = np.ones(sequences, np.int32)
        outputs = np.arange(sequences, dtype=np.int32)
        started = time.perf_counter()
        for step in range(tokens):
            ids = np.full(sequences, (step * 31 + 7) % self._vocabulary, np.int32)
            positions = np.array([s.length for s in self._kept], np.int32)
            tables = [s.grow(1) for s in self._kept]
            self._backend.forward(
                Batch(ids, positions, counts, tables, outputs, ExecutionPhase.GENERATION)
            )
        return time.perf_counter() - started

    def logits(self, ids: list[int]) -> NDArray[np.float32]:
        """Logits of every position, each token a step of its own."""
        sequence = Sequence(self._pool)
        one, first = np.ones(1, np.int32), np.zeros(1, np.int32)
        rows = [
            self._backend.forward(
                Batch(
                    np.array([token], np.int32),
                    np.array([position], np.int32),
                    one,
                    [sequence.grow(1)],
                    first,
                    ExecutionPhase.GENERATION,
                )
            )
            for position, token in enumerate(ids)
        ]
        sequence.close()
        return np.concatenate(rows)

    def close(self) -> None:
        """Close the model."""
        self._drop()
        self._llm.close()

    def _read(self, sequence: Sequence, tokens: int, *, wanted: bool) -> None:
        size = self._backend.max_tokens
        for start in range(0, tokens, size):
            count = min(size, tokens - start)
            ids = ((np.arange(start, start + count) * 7919 + 13) % self._vocabulary).astype(
                np.int32
            )
            last = [count - 1] if wanted and start + count == tokens else []
            self._backend.forward(
                Batch(
                    ids,
                    np.arange(start, start + count, dtype=np.int32),
                    np.array([count], np.int32),
                    [sequence.grow(count)],
                    np.array(last, np.int32),
                    ExecutionPhase.PROMPT,
                )
            )

    def _drop(self) -> None:
        for sequence in self._kept:
            sequence.close()
        self._kept = []
