"""JoinedRows: embeddings of tokens and hidden states, each after its RMS norm, side by side.

Token ids and rows of hidden states come in; rows for the graph of a head go out. `HeadInputs` says
of which tensors they are made.
"""

from dataclasses import dataclass

import numpy as np

from ingot.arrays import Floats, Ints
from ingot.gguf import HasTensors
from ingot.graph import ops as o
from ingot.quant import decode


@dataclass(frozen=True, slots=True)
class HeadInputs:
    """An embedding, and the norms of tokens and of hidden states."""

    table: o.Weight
    token_norm: o.Weight
    hidden_norm: o.Weight
    epsilon: float
    adds_hidden: bool = False  # hidden states come a third time, as they are


class JoinedRows:
    """The rows of a head, in NumPy."""

    def __init__(self, inputs: HeadInputs, weights: HasTensors) -> None:
        tensors = weights.tensors
        self._table = tensors[inputs.table.name]
        self._epsilon = np.float32(inputs.epsilon)
        self._adds_hidden = inputs.adds_hidden
        norms = (tensors[norm.name] for norm in (inputs.token_norm, inputs.hidden_norm))
        self._token_norm, self._hidden_norm = (
            decode(norm.data, norm.type, norm.shape) for norm in norms
        )

    def of(self, ids: Ints, hidden: Floats) -> Floats:
        """The rows [tokens, 2 * width], or three times the width with the hidden states."""
        table = self._table
        size = table.nbytes // table.shape[0]
        data = table.data.reshape(table.shape[0], size)[ids]
        embedded = decode(data, table.type, (len(ids), table.shape[1]))
        added = [hidden] if self._adds_hidden else []
        normed = self._norm(embedded, self._token_norm), self._norm(hidden, self._hidden_norm)
        return np.concatenate([*normed, *added], axis=1)

    def _norm(self, rows: Floats, weight: Floats) -> Floats:
        with np.errstate(all="ignore"):  # numbers that are none make guesses that are wrong
            squares = np.mean(rows * rows, axis=1, keepdims=True)
            normed: Floats = rows / np.sqrt(squares + self._epsilon) * weight
        return normed
