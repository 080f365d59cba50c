"""JoinedRows: embeddings of tokens and hidden states, each after its RMS norm, side by side.

Token ids and rows of hidden states come in; rows for the graph of a head go out.
"""

from collections.abc import Iterable

import numpy as np

from ingot.arrays import Floats, Ints
from ingot.gguf import LazyTensor
from ingot.quant import decode


class JoinedRows:
    """An embedding, and the norms of tokens and of hidden states."""

    def __init__(self, table: LazyTensor, norms: Iterable[LazyTensor], epsilon: float) -> None:
        """`norms` are the weights of two: of tokens, and of hidden states."""
        self._table = table
        self._epsilon = np.float32(epsilon)
        self._token_norm, self._hidden_norm = (
            decode(norm.data, norm.type, norm.shape) for norm in norms
        )

    def of(self, ids: Ints, hidden: Floats) -> Floats:
        """The rows [tokens, 2 * width]."""
        table = self._table
        size = table.nbytes // table.shape[0]
        data = table.data.reshape(table.shape[0], size)[ids]
        embedded = decode(data, table.type, (len(ids), table.shape[1]))
        return np.concatenate(
            [self._norm(embedded, self._token_norm), self._norm(hidden, self._hidden_norm)], axis=1
        )

    def _norm(self, rows: Floats, weight: Floats) -> Floats:
        with np.errstate(all="ignore"):  # numbers that are none make guesses that are wrong
            squares = np.mean(rows * rows, axis=1, keepdims=True)
            normed: Floats = rows / np.sqrt(squares + self._epsilon) * weight
        return normed
