"""SecondPrograms: what else a model's weights compute, besides the next token.

Tokens come in; embeddings, scores of a reranker and hidden states go out. Each needs a program of
its own over the same weights, which is made when somebody asks for it.
"""

from collections.abc import Sequence
from typing import get_args

import numpy as np

from ingot import models
from ingot.arrays import Floats, Ints
from ingot.engine.model.hidden_states import HiddenStateRunner
from ingot.engine.model.loaded_model import LoadedModel
from ingot.engine.model.rerank_pairs import PairEncoder
from ingot.errors import SamplingError
from ingot.once import once
from ingot.tokenizer import Tokenizer


class SecondPrograms:
    """The programs of one model; any thread may use them, and one at a time is made."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model

    @once
    def hidden(self) -> HiddenStateRunner:
        """Computes hidden states."""
        graph = models.build_graph(self._model.file, self._model.context, hidden=True)
        return HiddenStateRunner(self._model, graph)

    @once
    def _layers(self) -> HiddenStateRunner:
        """Tells what each layer makes."""
        if self._model.gpu is None:
            return self.hidden
        graph = models.build_graph(self._model.file, self._model.context, hidden=True)
        return HiddenStateRunner(self._model, graph, on_cpu=True)

    @once
    def ranker(self) -> HiddenStateRunner:
        """Computes the scores of a reranker."""
        return HiddenStateRunner(self._model, self._model.graph)

    def pooled(self, texts: Sequence[Ints], pooling: models.Pooling) -> Floats:
        """One vector of each text [texts, width]."""
        return self.hidden.pooled(texts, pooling)

    def scores(self, texts: Sequence[Ints], types: Sequence[Ints]) -> Floats:
        """What the head of a reranker gives [texts, outputs]."""
        return self.ranker.scores(texts, types)

    def layer_states(self, text: Ints) -> Floats:
        """The embedding and the hidden state after each layer: [1 + layers, tokens, width]."""
        return self._layers.layer_states(text)

    def embeddings(
        self, texts: Sequence[Ints], pooling: models.Pooling, *, normalize: bool
    ) -> Floats:
        """Embeddings [texts, width]; normalized ones have length 1."""
        if pooling not in get_args(models.Pooling):
            raise SamplingError("pooling", pooling, "'mean', 'cls' or 'last'")
        vectors = self.pooled(texts, pooling)
        if normalize:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors

    def ranking(
        self, tokenizer: Tokenizer, query: str, documents: Sequence[str], truncate: int | None
    ) -> Floats:
        """Scores [documents] of a query; `ModelError` if the model has no ranking head.

        Pairs of more than `truncate` tokens are cut to that many.
        """
        pairs = PairEncoder(self._model, tokenizer)
        if not documents:
            return np.empty(0, np.float32)
        encoded = (pairs.encode(query, text, truncate) for text in documents)
        tokens, types = zip(*encoded, strict=True)
        return pairs.scores(self.scores(tokens, types))
