"""Probe: the states inside a model, for embeddings and for looking at its layers; and scores.

A second program over the same weights that ends before the logits, or with a head that scores
texts, with a cache of its own. It runs beside the engine's, in the caller's thread, and always on
the CPU.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.cpu import CpuBackend
from ingot.engine.health import Home
from ingot.engine.loaded import Ints, LoadedModel
from ingot.engine.placing import STEP_TOKENS
from ingot.graph import ComputationGraph
from ingot.graph.kv_layout import KvLayout, block_count
from ingot.graph.kv_type import KvType
from ingot.graph.ops import Value
from ingot.kvcache import BlockPool
from ingot.kvcache import Sequence as KvSequence

Floats = NDArray[np.float32]
_STATES = 16  # of a recurrent model: two for each text of a step


class Probe:
    """Runs texts for their states or scores. Calls of several threads take turns."""

    def __init__(self, model: LoadedModel, graph: ComputationGraph) -> None:
        """`graph` is another one of the model's file: its hidden rows, or its scores."""
        layout = model.layout
        if layout.type is KvType.FP8:  # which only a GPU stores
            layout = KvLayout.of(graph.kv_layers, KvType.F16)
        blocks = block_count(model.context)
        states = _STATES if model.layout.recurrent else 0
        self._streams = _streams(graph) if graph.hidden else []
        self._output = graph.logits
        self._file = model.file
        self._backend = CpuBackend(
            graph,
            model.file,
            layout,
            blocks=blocks,
            states=states,
            context=model.context,
            threads=model.threads,
            max_tokens=STEP_TOKENS if model.on_gpu else model.step_tokens,
            keep=[value.name for value in self._streams if value != graph.logits],
        )
        self._pool = BlockPool(layout, blocks, states)
        self._home = Home(str(model.file.path))
        self._lock = Lock()

    def last_states(self, texts: Sequence[Ints]) -> Iterator[Floats]:
        """What each text's tokens are to the model in the end: [tokens, width], text by text."""
        for group in self._groups(texts):
            yield from self._run_together(texts[group])

    def scores(self, texts: Sequence[Ints], types: Sequence[Ints]) -> Floats:
        """Scores [texts, outputs] of texts, whose tokens have types, by a model with a head."""
        return np.concatenate(
            [self._score_together(texts[group], types[group]) for group in self._groups(texts)]
        )

    @contextmanager
    def _turn(self) -> Iterator[None]:
        self._home.check()  # first: in a fork the lock may be one that nobody will release
        with self._lock:
            yield

    def _groups(self, texts: Sequence[Ints]) -> Iterator[slice]:
        """Texts that run in one step."""
        first = 0
        for after in range(1, len(texts) + 1):
            if after == len(texts) or not self._fit(texts[first : after + 1]):
                yield slice(first, after)
                first = after

    def _fit(self, texts: Sequence[Ints]) -> bool:
        most = self._backend.max_tokens
        room = all(
            sum(group.blocks_of(len(text), most) for text in texts) <= size
            for group, size in zip(self._pool.layout.groups, self._pool.sizes, strict=True)
        )
        return room and sum(map(len, texts)) <= most

    def layer_states(self, text: Ints) -> Floats:
        """The embedding and the state behind each layer: [1 + layers, tokens, width]."""
        states = np.empty((len(self._streams), len(text), self._output.width), np.float32)
        with self._turn():
            sequence = KvSequence(self._pool)
            try:
                for start in range(0, len(text), self._backend.max_tokens):
                    chunk = text[start : start + self._backend.max_tokens]
                    output = self._forward([sequence], [chunk])
                    for states_of, value in zip(states, self._streams, strict=True):
                        rows = states_of[start : start + len(chunk)]
                        if value == self._output:
                            rows[:] = output
                        else:
                            self._backend.kept(value.name, len(chunk), rows)
            finally:
                sequence.close()
        return states

    def _run_together(self, texts: Sequence[Ints]) -> list[Floats]:
        """The states of texts that fit into one step, or of a single one that does not."""
        most = self._backend.max_tokens
        with self._turn():
            sequences = [KvSequence(self._pool) for _ in texts]
            try:
                pieces = [
                    self._forward(sequences, [text[start : start + most] for text in texts])
                    for start in range(0, max(map(len, texts)), most)
                ]
            finally:
                for sequence in sequences:
                    sequence.close()
        states = np.concatenate(pieces)
        return np.split(states, np.cumsum([len(text) for text in texts])[:-1])

    def _score_together(self, texts: Sequence[Ints], types: Sequence[Ints]) -> Floats:
        firsts = np.cumsum([0, *(len(text) for text in texts[:-1])], dtype=np.int32)
        with self._turn():
            sequences = [KvSequence(self._pool) for _ in texts]
            try:
                return self._forward(sequences, texts, firsts, np.concatenate(types))
            finally:
                for sequence in sequences:
                    sequence.close()

    def _forward(
        self,
        sequences: Sequence[KvSequence],
        texts: Sequence[Ints],
        outputs: Ints | None = None,
        types: Ints | None = None,
    ) -> Floats:
        positions = []
        for sequence, text in zip(sequences, texts, strict=True):
            positions.append(np.arange(sequence.length, sequence.length + len(text)))
            sequence.grow(len(text))
        counts = np.array([len(text) for text in texts], np.int32)
        states = self._backend.forward(
            Batch(
                ids=np.concatenate(texts),
                positions=np.concatenate(positions).astype(np.int32),
                counts=counts,
                tables=[sequence.tables for sequence in sequences],
                outputs=np.arange(counts.sum(), dtype=np.int32) if outputs is None else outputs,
                phase=ExecutionPhase.PROMPT,
                types=types,
            )
        )
        if self._file.is_mapped:
            self._file.check()
        for sequence in sequences:
            sequence.release_passed()
        return states


def _streams(graph: ComputationGraph) -> list[Value]:
    """What is handed from layer to layer: the last value before them, and the last of each."""
    last: dict[int, Value] = {}
    for op in graph.ops:
        number = 0 if op.layer is None else op.layer + 1
        for value in op.outputs:
            if value.width == graph.width and number >= max(last, default=0):
                last[number] = value
    return list(last.values())
