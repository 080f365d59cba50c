"""Encodes metadata values for the writer; `metadata.py` reads them.

In: a Python or NumPy value, with or without its type in the file. Out: the bytes in the file.
Floats are rounded to their type; any other value that does not fit is an error.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from struct import pack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.errors import GgufError
from ingot.gguf.metadata import StringArray
from ingot.gguf.types import ValueType

Scalar = bool | int | float | str | bytes | np.generic
Writable = Scalar | Sequence[Scalar] | StringArray | NDArray[Any]


def encode_string(data: bytes) -> bytes:
    """A length prefix and the bytes."""
    return pack("<Q", len(data)) + data


def encode_value(key: str, value: Writable, type: ValueType | None = None) -> bytes:
    """The type and the bytes of a value. For an array, `type` is that of the elements.

    Without `type`: NumPy values keep theirs; integers become UINT32 (INT32 if one is negative; 64
    bits wide if necessary), floats FLOAT32, `str` and `bytes` STRING.
    """
    encoder = _Encoder(key)
    if isinstance(value, bool | int | float | str | bytes | np.generic):
        kind = encoder.infer([value]) if type is None else type
        return pack("<I", kind) + encoder.encode([value], kind)
    if isinstance(value, np.ndarray):
        if value.ndim != 1:
            raise encoder.error(f"an array must have one dimension, this one has {value.ndim}")
        value = value.astype(value.dtype.newbyteorder("<"), copy=False)
    kind = encoder.infer(value) if type is None else type
    return pack("<IIQ", ValueType.ARRAY, kind, len(value)) + encoder.encode(value, kind)


def _is_bool(value: object) -> bool:
    return isinstance(value, bool | np.bool_)


@dataclass(frozen=True, slots=True)
class _Encoder:
    """Encodes the values of one key, which error messages name."""

    key: str

    def error(self, reason: str) -> GgufError:
        return GgufError(reason, field=self.key)

    def infer(self, values: Any) -> ValueType:
        if isinstance(values, StringArray):
            return ValueType.STRING
        if isinstance(values, np.ndarray):
            return self._of_dtype(values.dtype)
        if len(values) == 0:
            raise self.error("an empty array needs a type")
        if all(isinstance(v, str | bytes) for v in values):
            return ValueType.STRING
        if all(isinstance(v, np.generic) for v in values):
            return self._of_dtype(np.asarray(values).dtype)
        return self._of_numbers(values)

    def _of_dtype(self, dtype: np.dtype[Any]) -> ValueType:
        for kind in ValueType:
            if kind not in (ValueType.STRING, ValueType.ARRAY) and dtype == np.dtype(kind.dtype):
                return kind
        raise self.error(f"NumPy's {dtype} has no metadata type")

    def _of_numbers(self, values: Any) -> ValueType:
        if all(_is_bool(v) for v in values):
            return ValueType.BOOL
        if not all(isinstance(v, Real) and not _is_bool(v) for v in values):
            raise self.error("a value must be a bool, a number, a string, or an array of these")
        if not all(isinstance(v, Integral) for v in values):
            return ValueType.FLOAT32
        low, high = min(values), max(values)
        if low >= 0:
            return ValueType.UINT32 if high < 2**32 else ValueType.UINT64
        return ValueType.INT32 if low >= -(2**31) and high < 2**31 else ValueType.INT64

    def encode(self, values: Any, kind: ValueType) -> bytes:
        if kind is ValueType.ARRAY:
            raise self.error("the format has no arrays of arrays")
        if kind is ValueType.STRING:
            return self._strings(values)
        dtype = np.dtype(kind.dtype)
        if isinstance(values, np.ndarray):
            if values.dtype == dtype:
                return values.tobytes()
            values = values.tolist()
        if dtype.kind == "b":
            if not all(_is_bool(v) for v in values):
                raise self.error("BOOL needs True or False")
            return np.array(values, dtype).tobytes()
        if dtype.kind == "f":
            return self._floats(values, kind)
        return self._integers(values, kind)

    def _strings(self, values: Any) -> bytes:
        if isinstance(values, StringArray):
            return b"".join(encode_string(values.raw(i)) for i in range(len(values)))
        pieces = []
        for value in values:
            if not isinstance(value, str | bytes):
                raise self.error(f"STRING needs str or bytes, not {value!r}")
            try:
                data = value.encode() if isinstance(value, str) else value
            except UnicodeEncodeError as error:
                raise self.error(f"text cannot be encoded as UTF-8: {error}") from None
            pieces.append(encode_string(data))
        return b"".join(pieces)

    def _integers(self, values: Any, kind: ValueType) -> bytes:
        limits = np.iinfo(kind.dtype)
        for value in values:
            if not isinstance(value, Integral) or _is_bool(value):
                raise self.error(f"{kind.name} needs an integer, not {value!r}")
            if not limits.min <= int(value) <= limits.max:
                raise self.error(f"{value} does not fit {kind.name}")
        return np.array([int(v) for v in values], kind.dtype).tobytes()

    def _floats(self, values: Any, kind: ValueType) -> bytes:
        for value in values:
            if not isinstance(value, Real) or _is_bool(value):
                raise self.error(f"{kind.name} needs a number, not {value!r}")
        try:
            wide = np.array([float(v) for v in values], np.float64)
            with np.errstate(over="raise"):
                return wide.astype(kind.dtype).tobytes()
        except (OverflowError, FloatingPointError):
            raise self.error(f"a number does not fit {kind.name}") from None
