"""Rows of float32 from a stored tensor, whatever its type.

In: a stored tensor, or several that belong together (packed integers and their scales). Out: a
`Matrix`: rows by number, so that a tensor of any size is read piece by piece. `packed.py` has the
quantized ones.
"""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ingot.arrays import Floats
from ingot.convert.safetensors import StoredTensor, as_view
from ingot.errors import ConversionError
from ingot.gguf import GgmlType
from ingot.quant import decode

RowNumbers = NDArray[np.int64]


class Matrix(Protocol):
    """A tensor as rows: `shape` is [..., rows, columns]; rows are numbered through."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, at least two dimensions."""

    def read(self, rows: RowNumbers) -> Floats:
        """Some rows, [rows, columns]."""

    def release(self) -> None:
        """Give back the memory of what was read."""


class PlainMatrix:
    """A tensor of floats (or of integers, as their values)."""

    def __init__(self, tensor: StoredTensor, *, vectors: bool = False, transposed: bool = False):
        """`vectors`: every element is a row. `transposed`: columns are stored as rows."""
        self.tensor = tensor
        self.is_vector = len(tensor.shape) < 2
        self._vectors = vectors or self.is_vector
        self.transposed = transposed
        shape = (*tensor.shape, 1) if self._vectors else tensor.shape
        self.shape = (*shape[:-2], shape[-1], shape[-2]) if transposed else shape

    def read(self, rows: RowNumbers) -> Floats:
        """Some rows as float32."""
        return as_floats(self.stored_rows(rows), self.tensor.type)

    def stored_rows(self, rows: RowNumbers) -> NDArray[Any]:
        """Some rows as they are stored: a view if possible."""
        values = as_view(self.tensor)
        if self._vectors:
            values = values.reshape(-1, 1)
        elif self.transposed:
            values = values.swapaxes(-1, -2)
        return np.require(_picked(values, rows), requirements="A")

    def release(self) -> None:
        """Give back the memory of what was read."""
        self.tensor.release()


def _picked(values: "np.ndarray[Any, np.dtype[Any]]", rows: RowNumbers) -> NDArray[Any]:
    """Rows of an array of any dimensions: a view if they are consecutive."""
    if values.ndim == 2:
        first, last = int(rows[0]), int(rows[-1])
        if last - first + 1 == len(rows) and bool((np.diff(rows) == 1).all()):
            return values[first : last + 1]
        picked: NDArray[Any] = values[rows]
        return picked
    picked = values[np.unravel_index(rows, values.shape[:-1])]
    return picked


def as_floats(values: NDArray[Any], type: str) -> Floats:
    """Elements of a safetensors type as float32."""
    if type in ("BF16", "F16"):
        return decode(values, GgmlType[type], values.shape)
    if type == "F8_E4M3":
        return np.take(_E4M3, values)
    if type == "F8_E5M2":
        return (values.astype(np.uint16) << np.uint16(8)).view(np.float16).astype(np.float32)
    if type[0] not in "FIU" or type == "F8_E8M0":
        raise ConversionError(f"weights of the type {type} are not supported")
    return np.ascontiguousarray(values, np.float32)


def _e4m3_values() -> Floats:
    """The value of each byte: 1 sign bit, 4 exponent bits (bias 7), 3 mantissa bits, one NaN."""
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, (codes & 7) / 8
    sizes = np.where(exponent, (1 + mantissa) * 2.0 ** (exponent - 7), mantissa * 2.0**-6)
    sizes[codes & 127 == 127] = np.nan
    values: Floats = np.where(codes & 128, -sizes, sizes).astype(np.float32)
    return values


_E4M3 = _e4m3_values()
