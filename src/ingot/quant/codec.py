"""Decode and encode whole tensors with the native kernels.

In: the bytes of a tensor (a read-only view of the file is enough) or its values. Out: a
new array. Sizes are checked here, by name and number; the kernels trust them. Knows
nothing of files; `threads` is all it knows of the machine.
"""

from math import isfinite, prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ingot import _native
from ingot.arrays import Bytes, Floats
from ingot.config import config
from ingot.errors import QuantError
from ingot.gguf import GgmlType

_HALF_MOST = 65504.0  # the largest half float
_WIDE = (GgmlType.F32, GgmlType.F64, GgmlType.BF16, GgmlType.MXFP4)  # no half float in them
_LARGE = 1e9  # importance whose products with squares of weights may overflow

Buffer: TypeAlias = bytes | bytearray | memoryview | NDArray[Any]


def decode(
    data: Buffer, type: int, shape: tuple[int, ...] | None = None, threads: int | None = None
) -> Floats:
    """Decode blocks of a type to float32, in `shape` (default: one row)."""
    ggml = _known(type)
    blocks = _flat_bytes(data)
    count, rest = divmod(blocks.size, ggml.block_bytes)
    if rest:
        raise QuantError(
            f"{ggml.name}: {blocks.size} bytes are not whole blocks of {ggml.block_bytes}"
        )
    weights = count * ggml.block_size
    if shape is None:
        shape = (weights,)
    _check_rows(ggml, shape)
    if prod(shape) != weights:
        raise QuantError(
            f"{ggml.name}: {blocks.size} bytes hold {weights} weights, "
            f"shape {list(shape)} needs {prod(shape)}"
        )
    out = np.empty(weights, np.float32)
    _native.decode(ggml, blocks, out, _thread_count(threads))
    return out.reshape(shape)


def encode(
    values: ArrayLike,
    type: int,
    threads: int | None = None,
    importance: Floats | None = None,
) -> Bytes:
    """Encode values as blocks of a type: [..., weights] -> uint8 [..., bytes].

    `importance` has a number from 0 for each weight of a row; the squared errors of formats that
    are searched count as much. Other formats do not depend on it.
    """
    ggml = _known(type)
    if not _native.has_encoder(ggml):
        known = ", ".join(t.name for t in GgmlType if _native.has_encoder(t))
        raise QuantError(f"{ggml.name} cannot be encoded; these can: {known}")
    array = np.ascontiguousarray(values, np.float32)
    _check_rows(ggml, array.shape)
    *rows, row = array.shape
    out = np.empty(array.size // ggml.block_size * ggml.block_bytes, np.uint8)
    if importance is not None and _native.has_weighted_encoder(ggml):
        if importance.shape != (row,):
            raise QuantError(
                f"importance of shape {list(importance.shape)} for rows of {row} weights"
            )
        if not (np.isfinite(importance).all() and np.min(importance) >= 0):
            raise QuantError("importance must be finite and not negative")
        # Only ratios count: as parts of the largest, their sums stay finite.
        largest = np.max(importance)
        scaled = importance / largest if largest > _LARGE else importance
        counts = np.ascontiguousarray(scaled, np.float32)
        _native.encode_weighted(ggml, array.reshape(-1), counts, out, _thread_count(threads))
    else:
        _native.encode(ggml, array.reshape(-1), out, _thread_count(threads))
    return out.reshape(*rows, row // ggml.block_size * ggml.block_bytes)


def require_encodable(values: Floats, kind: GgmlType, name: str) -> None:
    """Refuse weights that a block would spread to its neighbours: NaN, infinite, too large."""
    if values.size == 0:
        return
    least, most = float(values.min()), float(values.max())  # NaN if one is
    if not (isfinite(least) and isfinite(most)):
        raise QuantError(f"{name} has weights that are NaN or infinite; the model is damaged")
    if kind not in _WIDE and max(-least, most) > _HALF_MOST:
        raise QuantError(
            f"{name} has weights up to {max(-least, most):.3g}, but {kind.name} ends at "
            f"{_HALF_MOST:g}; keep this tensor as BF16 or F32"
        )


def _known(type: int) -> GgmlType:
    try:
        return GgmlType(type)
    except ValueError:
        raise QuantError(f"unknown tensor type {type}") from None


def _flat_bytes(data: Buffer) -> Bytes:
    array = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _check_rows(ggml: GgmlType, shape: tuple[int, ...]) -> None:
    if any(size < 0 for size in shape):
        raise QuantError(f"{ggml.name}: shape {list(shape)} has a negative size")
    if shape and shape[-1] % ggml.block_size:
        raise QuantError(
            f"{ggml.name}: rows of {shape[-1]} weights are not whole blocks of {ggml.block_size}"
        )


def _thread_count(threads: int | None) -> int:
    settings = config()  # also applies INGOT_ISA
    if threads is None:
        return settings.threads
    if threads < 1:
        raise QuantError(f"threads is {threads}; it must be at least 1")
    return threads
