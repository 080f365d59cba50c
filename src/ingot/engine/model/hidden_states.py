"""HiddenStateRunner: hidden states of texts, for embeddings and for a look at a model's layers.

For a reranker it returns scores instead. It is a second program over the same weights, with its own
KV cache, that ends before the logits or with a head that scores texts. It runs beside the engine's,
in the caller's thread, on the GPU if all of the model is there and memory is left; an encoder or a
reranker on a GPU has but one program. What layers make is told by the CPU alone.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

import numpy as np

from ingot.arrays import Floats, Ints
from ingot.backends.backend import Backend
from ingot.backends.batch import ExecutionPhase
from ingot.backends.cpu import CpuBackend
from ingot.engine.health import Home
from ingot.engine.model.loaded_model import LoadedModel, build_batch
from ingot.engine.model.placement import STEP_TOKENS
from ingot.graph import ComputationGraph
from ingot.graph.kv_layout import KvLayout, block_count
from ingot.graph.kv_type import KvType
from ingot.graph.ops import Value
from ingot.kvcache import BlockPool, SequenceBlocks
from ingot.models import Pooling

_STATES = 16  # of a recurrent model: two for each text of a step


class HiddenStateRunner:
    """Runs texts for their hidden states or scores. Threads take turns."""

    def __init__(
        self, model: LoadedModel, graph: ComputationGraph, *, on_cpu: bool = False
    ) -> None:
        """`graph` is built from the same file; its output is hidden states, or scores.

        `on_cpu`: even if the model is on a GPU.
        """
        self._output = graph.logits
        self._causal = graph.causal
        self._streams: list[Value] = []
        self._cpu: CpuBackend | None = None
        self._backend, self._pool = (None if on_cpu else _on_gpu(model, graph)) or self._on_cpu(
            model, graph
        )
        self._read_file = model.file if self._cpu and model.file.is_mapped else None
        self._home = Home(str(model.file.path))
        self._lock = Lock()

    def _on_cpu(self, model: LoadedModel, graph: ComputationGraph) -> tuple[CpuBackend, BlockPool]:
        kind = model.layout.type
        if kind is KvType.FP8:  # only a GPU stores it
            kind = KvType.F16
        layout = KvLayout.of(graph.kv_layers, kind, graph.states)
        blocks, states = _cache_size(model, layout)
        self._streams = _streams(graph) if graph.hidden else []
        few = STEP_TOKENS if graph.causal else model.context
        self._cpu = CpuBackend(
            graph,
            model.file,
            layout,
            blocks=blocks,
            states=states,
            context=model.context,
            threads=model.threads,
            precision=model.precision,
            max_tokens=few if model.on_gpu else model.step_tokens,
            keep=[value.name for value in self._streams if value != graph.logits],
        )
        return self._cpu, BlockPool(layout, blocks, states)

    def last_states(self, texts: Sequence[Ints]) -> Iterator[Floats]:
        """The last hidden states of each text's tokens: [tokens, width], text by text."""
        for group in self._groups(texts):
            yield from self._run_together(texts[group])

    def pooled(self, texts: Sequence[Ints], pooling: Pooling) -> Floats:
        """One vector of each text [texts, width]: the mean, the last or the first of its states."""
        vectors = np.empty((len(texts), self._output.width), np.float32)
        for vector, states in zip(vectors, self.last_states(texts), strict=True):
            match pooling:
                case "mean":
                    vector[:] = states.mean(axis=0)
                case "last":
                    vector[:] = states[-1]
                case "cls":
                    vector[:] = states[0]
        return vectors

    def scores(self, texts: Sequence[Ints], types: Sequence[Ints]) -> Floats:
        """Scores [texts, outputs] by the model's head; `types` are those of the tokens."""
        return np.concatenate(
            [self._score_together(texts[group], types[group]) for group in self._groups(texts)]
        )

    @contextmanager
    def _turn(self) -> Iterator[None]:
        self._home.check()  # first, because after a fork nobody may release the lock
        with self._lock:
            yield

    def _groups(self, texts: Sequence[Ints]) -> Iterator[slice]:
        """Split texts into groups that run in one step each."""
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
        """The embedding and the hidden state after each layer: [1 + layers, tokens, width]."""
        assert self._cpu is not None, "a GPU does not tell them"
        states = np.empty((len(self._streams), len(text), self._output.width), np.float32)
        with self._turn():
            sequence = SequenceBlocks(self._pool)
            try:
                for start in range(0, len(text), self._backend.max_tokens):
                    chunk = text[start : start + self._backend.max_tokens]
                    output = self._forward([sequence], [chunk])
                    for states_of, value in zip(states, self._streams, strict=True):
                        rows = states_of[start : start + len(chunk)]
                        if value == self._output:
                            rows[:] = output
                        else:
                            self._cpu.kept(value.name, len(chunk), rows)
            finally:
                sequence.close()
        return states

    def _run_together(self, texts: Sequence[Ints]) -> list[Floats]:
        """The hidden states of texts that fit into one step, or of a single one that does not."""
        most = self._backend.max_tokens
        with self._turn():
            sequences = [SequenceBlocks(self._pool) for _ in texts]
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
        """Scores of texts that fit into one step, or of a single one that does not."""
        most = self._backend.max_tokens
        with self._turn():
            sequences = [SequenceBlocks(self._pool) for _ in texts]
            try:
                for start in range(0, max(map(len, texts)), most):
                    pieces = [text[start : start + most] for text in texts]
                    ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int32)
                    firsts = np.array([0, *ends[:-1]], np.int32)
                    kinds = np.concatenate([kind[start : start + most] for kind in types])
                    rows = ends - 1 if self._causal else firsts
                    scores = self._forward(sequences, pieces, rows, kinds)
            finally:
                for sequence in sequences:
                    sequence.close()
        return scores

    def _forward(
        self,
        sequences: Sequence[SequenceBlocks],
        texts: Sequence[Ints],
        outputs: Ints | None = None,
        types: Ints | None = None,
    ) -> Floats:
        for sequence, text in zip(sequences, texts, strict=True):
            sequence.grow(len(text))
        if outputs is None:
            outputs = np.arange(sum(map(len, texts)), dtype=np.int32)
        counts = np.array([len(text) for text in texts], np.int32)
        batch = build_batch(
            sequences, np.concatenate(texts), counts, outputs, ExecutionPhase.PROMPT, types
        )
        states = self._backend.forward(batch)
        if self._read_file is not None:
            self._read_file.check()
        for sequence in sequences:
            sequence.release_passed()
        return states


def _on_gpu(model: LoadedModel, graph: ComputationGraph) -> tuple[Backend, BlockPool] | None:
    """A backend and a cache; None if the GPU has no place for them."""
    own = model.own_program(graph)
    if own is not None:
        return own, model.pool
    layout = KvLayout.of(graph.kv_layers, model.layout.type, graph.states)
    blocks, states = _cache_size(model, layout)
    backend = model.add_gpu_program(graph, layout, blocks=blocks, states=states)
    return None if backend is None else (backend, BlockPool(layout, blocks, states))


def _cache_size(model: LoadedModel, layout: KvLayout) -> tuple[int, int]:
    """Blocks for one context, and states if there are any."""
    return block_count(model.context), _STATES if layout.recurrent else 0


def _streams(graph: ComputationGraph) -> list[Value]:
    """The residual stream: the last value before the layers, and the last of each layer."""
    last: dict[int, Value] = {}
    for op in graph.ops:
        number = 0 if op.layer is None else op.layer + 1
        for value in op.outputs:
            if value.width == graph.width and number >= max(last, default=0):
                last[number] = value
    return list(last.values())
