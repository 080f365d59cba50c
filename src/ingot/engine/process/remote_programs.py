"""RemotePrograms: embeddings and scores, computed in the process of the engine."""

from collections.abc import Callable, Sequence
from typing import Any

from ingot.arrays import Floats, Ints
from ingot.engine.model.loaded_model import LoadedModel
from ingot.engine.model.second_programs import SecondPrograms
from ingot.models import Pooling


class RemotePrograms(SecondPrograms):
    """Asks the process that has the weights. What layers make is computed here, on the CPU."""

    def __init__(self, model: LoadedModel, call: Callable[..., Any]) -> None:
        super().__init__(model)
        self._call = call

    def pooled(self, texts: Sequence[Ints], pooling: Pooling) -> Floats:
        """One vector of each text [texts, width]."""
        vectors: Floats = self._call("pooled", texts, pooling)
        return vectors

    def scores(self, texts: Sequence[Ints], types: Sequence[Ints]) -> Floats:
        """What the head of a reranker gives [texts, outputs]."""
        found: Floats = self._call("scores", texts, types)
        return found
