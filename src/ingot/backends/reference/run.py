"""Interpret a graph for the tokens of one sequence.

Token ids and a `Cache` (what the sequence has said so far) come in, logits of every token
go out. Of an encoder-decoder, `encode` reads a prompt first. Knows nothing of batches, blocks of
cache or threads, and no particular operation.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.adapters import Adapter
from ingot.backends.reference.step import Cache, Matrix, Step, compute
from ingot.errors import ModelError
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph
from ingot.quant import decode


class Reference:
    """A model run in NumPy, in float32 or float64."""

    def __init__(
        self, graph: ComputationGraph, model: GgufLoader, dtype: type[np.floating[Any]] = np.float32
    ) -> None:
        self.graph = graph
        self._dtype = dtype
        self._weights = {
            weight.name: decode(
                model.tensors[weight.name].data,
                model.tensors[weight.name].type,
                weight.tensor_shape,
            ).astype(dtype)
            for weight in graph.weights()
        }

    def forward(
        self,
        token_ids: list[int],
        cache: Cache | None = None,
        outputs: list[int] | None = None,
        types: list[int] | None = None,
        rows: Matrix | None = None,
        adapter: Adapter | None = None,
        adapter_scale: float = 1.0,
    ) -> NDArray[np.float32]:
        """Logits [outputs, vocabulary] of the tokens that follow what the cache holds.

        `outputs` are the tokens whose logits are wanted, by their place; None means all. `types`
        are those of the tokens, where the model tells them apart; None means 0. `rows` [tokens,
        width] are for a graph that begins with them.
        """
        cache = Cache() if cache is None else cache
        ids = np.asarray(token_ids, dtype=np.int64)
        size = self.graph.vocabulary_size
        if ids.ndim != 1 or ids.size == 0 or ids.min() < 0 or (size and ids.max() >= size):
            raise ModelError(f"token ids must be a non-empty list of numbers from 0 to {size - 1}")
        if cache.length and not self.graph.causal:
            raise ModelError("tokens that see later ones cannot be added to a sequence")
        step = Step(
            ids=ids,
            positions=np.arange(cache.length, cache.length + len(ids)),
            types=np.zeros(len(ids), np.int64) if types is None else np.asarray(types, np.int64),
            outputs=outputs,
            rows=rows,
            cache=cache,
            tensors=self._weights,
            dtype=self._dtype,
            adapter=adapter,
            adapter_scale=adapter_scale,
        )
        return self._run(self.graph, step)

    def encode(self, token_ids: list[int], cache: Cache) -> NDArray[np.float32]:
        """Read the prompt of an encoder-decoder into an empty cache; the encoder's rows."""
        encoder = self.graph.encoder
        if encoder is None:
            raise ModelError("there is no encoder before this network")
        ids = np.asarray(token_ids, dtype=np.int64)
        step = Step(
            ids=ids,
            positions=np.arange(len(ids)),
            types=np.zeros(len(ids), np.int64),
            outputs=None,
            rows=None,
            cache=cache,
            tensors=self._weights,
            dtype=self._dtype,
        )
        rows = self._run(encoder, step)
        cache.encoded = len(ids)
        return rows

    def _run(self, graph: ComputationGraph, step: Step) -> NDArray[np.float32]:
        for op in graph.ops:
            result = compute(op, step)
            if result is not None:
                step.values[op.outputs[0].name] = result
        step.cache.length += len(step.ids)
        return step.values[graph.logits.name].astype(np.float32)
