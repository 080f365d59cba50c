"""Probe: the states inside a model, for embeddings and for looking at its layers.

A second program over the same weights that ends before the logits, with a cache of its own. It
runs beside the engine's, in the caller's thread, and always on the CPU.
"""

from collections.abc import Iterator, Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.cpu import CpuBackend
from ingot.engine.loaded import Ints, LoadedModel
from ingot.engine.placing import STEP_TOKENS
from ingot.graph import ComputationGraph
from ingot.graph.kv_layout import BLOCK_TOKENS
from ingot.graph.ops import Value
from ingot.kvcache import BlockPool
from ingot.kvcache import Sequence as KvSequence
from ingot.models import build_graph

Floats = NDArray[np.float32]


class Probe:
    """Runs texts for their states. Calls of several threads take turns."""

    def __init__(self, model: LoadedModel) -> None:
        graph = build_graph(model.file, model.context, hidden=True)
        blocks = -(-model.context // BLOCK_TOKENS)
        self._streams = _streams(graph)
        self._output = graph.logits
        self._backend = CpuBackend(
            graph,
            model.file,
            model.layout,
            blocks=blocks,
            context=model.context,
            threads=model.threads,
            max_tokens=STEP_TOKENS if model.on_gpu else model.step_tokens,
            keep=[value.name for value in self._streams if value != graph.logits],
        )
        self._pool = BlockPool(model.layout, blocks)
        self._turn = Lock()

    def last_states(self, texts: Sequence[Ints]) -> Iterator[Floats]:
        """What each text's tokens are to the model in the end: [tokens, width], text by text."""
        group: list[Ints] = []
        for text in texts:
            if group and not self._fit([*group, text]):
                yield from self._run_together(group)
                group = []
            group.append(text)
        if group:
            yield from self._run_together(group)

    def _fit(self, texts: Sequence[Ints]) -> bool:
        blocks = sum(-(-len(text) // BLOCK_TOKENS) for text in texts)
        return blocks <= self._pool.blocks and sum(map(len, texts)) <= self._backend.max_tokens

    def layer_states(self, text: Ints) -> Floats:
        """The embedding and the state behind each layer: [1 + layers, tokens, width]."""
        states = np.empty((len(self._streams), len(text), self._output.width), np.float32)
        with self._turn:
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
        with self._turn:
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

    def _forward(self, sequences: Sequence[KvSequence], texts: Sequence[Ints]) -> Floats:
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
                outputs=np.arange(counts.sum(), dtype=np.int32),
                phase=ExecutionPhase.PROMPT,
            )
        )
        for sequence in sequences:
            sequence.release_passed()
        return states


def _streams(graph: ComputationGraph) -> list[Value]:
    """What is handed from layer to layer: the last value before them, and the last of each."""
    last: dict[int, Value] = {}
    for value in graph.values():
        block, _, rest = value.name.partition(".")
        number = int(rest.split(".")[0]) + 1 if block == "blk" else 0
        if value.width == graph.width and number >= max(last, default=0):
            last[number] = value
    return list(last.values())
