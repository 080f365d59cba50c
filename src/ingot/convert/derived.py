"""Matrices made of others: columns reordered, rows multiplied, blocks transposed, values rounded.

In: a `Matrix` and what is done to it. Out: a `Matrix`, still read by rows, so that a tensor of any
size needs little memory.
"""

from math import prod

import numpy as np

from ingot.arrays import Floats
from ingot.convert.matrices import Matrix, RowNumbers

_PIECE = 1 << 24  # elements that are in memory at once
_LEAST_MEAN = 1e-5


class ReorderedColumns:
    """The columns of a matrix in another order."""

    def __init__(self, matrix: Matrix, order: RowNumbers) -> None:
        self.shape = matrix.shape
        self.matrix, self.order = matrix, order

    def read(self, rows: RowNumbers) -> Floats:
        """Some rows."""
        return np.ascontiguousarray(self.matrix.read(rows)[:, self.order])

    def release(self) -> None:
        """Give back the memory of what was read."""
        self.matrix.release()


class MultipliedRows:
    """Each row of a matrix, multiplied by a factor of its own."""

    def __init__(self, matrix: Matrix, factors: Floats) -> None:
        self.shape = matrix.shape
        self._matrix, self._factors = matrix, factors

    def read(self, rows: RowNumbers) -> Floats:
        """Some rows."""
        multiplied: Floats = self._matrix.read(rows) * self._factors[rows, None]
        return multiplied

    def release(self) -> None:
        """Give back the memory of what was read."""
        self._matrix.release()


class TransposedBlocks:
    """Rows of a matrix in blocks of one height, each transposed: [blocks, columns, height]."""

    def __init__(self, matrix: Matrix, rows: RowNumbers, height: int) -> None:
        if len(rows) % height:
            raise ValueError(f"{len(rows)} rows are not blocks of {height}")
        self.shape = (len(rows) // height, matrix.shape[-1], height)
        self._matrix, self._rows = matrix, rows

    def read(self, rows: RowNumbers) -> Floats:
        """Some rows of the transposed blocks; the blocks that they are in are read as a whole."""
        _, width, height = self.shape
        blocks, columns = np.divmod(rows, width)
        first, last = int(blocks.min()), int(blocks.max()) + 1
        values = self._matrix.read(self._rows[first * height : last * height])
        return np.ascontiguousarray(values.reshape(-1, height, width)[blocks - first, :, columns])

    def release(self) -> None:
        """Give back the memory of what was read."""
        self._matrix.release()


class TernaryMatrix:
    """Values rounded to -1, 0 or 1, times their mean magnitude over the whole matrix."""

    def __init__(self, matrix: Matrix) -> None:
        self.shape = matrix.shape
        self._matrix = matrix
        self._scale: np.float32 | None = None

    def read(self, rows: RowNumbers) -> Floats:
        """Some rows; before the first, all are read once for the mean."""
        if self._scale is None:
            self._scale = self._mean_magnitude()
        rounded: Floats = np.clip(np.rint(self._matrix.read(rows) / self._scale), -1, 1)
        return rounded * self._scale

    def release(self) -> None:
        """Give back the memory of what was read."""
        self._matrix.release()

    def _mean_magnitude(self) -> np.float32:
        count = prod(self.shape[:-1])
        step = max(1, _PIECE // self.shape[-1])
        total = 0.0
        for first in range(0, count, step):
            values = self._matrix.read(np.arange(first, min(first + step, count)))
            total += float(np.abs(values).sum(dtype=np.float64))
            self._matrix.release()
        return np.float32(max(total / prod(self.shape), _LEAST_MEAN))


class Zeros:
    """A matrix of zeros."""

    def __init__(self, rows: int, columns: int) -> None:
        self.shape = (rows, columns)

    def read(self, rows: RowNumbers) -> Floats:
        """As many rows."""
        return np.zeros((len(rows), self.shape[-1]), np.float32)

    def release(self) -> None:
        """Nothing to give back."""
