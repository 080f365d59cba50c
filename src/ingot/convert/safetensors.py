"""Safetensors files: the tensors of a checkpoint, memory-mapped.

In: a path. Out: each tensor's name, type, shape and a view of its bytes. Every number of the header
is checked against the size of the file before it is used; `ConversionError` names the file and what
is wrong. This module does not know what a tensor is for.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from struct import unpack
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from ingot.arrays import Bytes
from ingot.errors import ConversionError
from ingot.files import FileRange
from ingot.gguf.mmap import MmapGguf

_LENGTH_BYTES = 8
_MOST_HEADER_BYTES = 100_000_000  # as in the reference implementation
_MOST_DIMENSIONS = 8
_METADATA = "__metadata__"

# Bytes of one element of each type.
SIZES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
        "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
        "I32": 4, "U32": 4, "F32": 4,
        "I64": 8, "U64": 8, "F64": 8,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of a file; its bytes are read on use."""

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int  # from the start of the file
    file: MmapGguf

    @property
    def nbytes(self) -> int:
        """Its size in the file."""
        return prod(self.shape) * SIZES[self.type]

    @property
    def data(self) -> Bytes:
        """A flat view of the file."""
        return self.file.get_slice(self.offset, self.nbytes)

    def ranges(self, most: int) -> Iterator[FileRange | Bytes]:
        """The bytes for a copy into another file, at most so many at a time."""
        for start in range(0, self.nbytes, most):
            yield self.file.get_range(self.offset + start, min(most, self.nbytes - start))

    def release(self) -> None:
        """Give back the memory of the file; it is read again if it is needed again."""
        self.file.release(self.file.size)


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a file, by name."""
    file = MmapGguf(path)
    header, start = _header(file)
    found = {
        name: _tensor(name, entry, start, file)
        for name, entry in header.items()
        if name != _METADATA
    }
    end = start
    for tensor in sorted(found.values(), key=lambda tensor: (tensor.offset, tensor.nbytes)):
        if tensor.offset != end:
            raise _damaged(path, f"tensor {tensor.name} overlaps another one, or follows a gap")
        end += tensor.nbytes
    if end != file.size:
        raise _damaged(path, f"the tensors end at byte {end}, but the file has {file.size} bytes")
    return found


def _header(file: MmapGguf) -> tuple[dict[str, Any], int]:
    """The decoded header, and where the data starts."""
    path = file.path
    if file.size < _LENGTH_BYTES:
        raise _damaged(path, f"it has {file.size} bytes; a header needs more")
    (length,) = unpack("<Q", file.get_slice(0, _LENGTH_BYTES).tobytes())
    start = _LENGTH_BYTES + length
    if length > _MOST_HEADER_BYTES or start > file.size:
        raise _damaged(path, f"a header of {length} bytes does not fit in {file.size} bytes")
    try:
        header = json.loads(
            file.get_slice(_LENGTH_BYTES, length).tobytes(), object_pairs_hook=_without_duplicates
        )
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"its header is not valid JSON ({error})") from None
    if not isinstance(header, dict):
        raise _damaged(path, "its header is not a JSON object")
    return header, start


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _tensor(name: str, entry: Any, start: int, file: MmapGguf) -> StoredTensor:
    path = file.path
    if not isinstance(entry, dict):
        raise _damaged(path, f"the entry of tensor {name!r} is not an object")
    kind = entry.get("dtype")
    shape: Any = entry.get("shape")
    offsets: Any = entry.get("data_offsets")
    if not isinstance(kind, str) or kind not in SIZES:
        known = ", ".join(SIZES)
        raise _damaged(path, f"tensor {name!r} has the type {kind!r}; known are {known}")
    if not _are_sizes(shape) or len(shape) > _MOST_DIMENSIONS:
        raise _damaged(path, f"tensor {name!r} has the shape {shape!r}")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise _damaged(path, f"tensor {name!r} has the offsets {offsets!r}")
    first, last = offsets
    if last > file.size - start or last - first != prod(shape) * SIZES[kind]:
        raise _damaged(
            path,
            f"tensor {name!r} ({kind}, shape {shape}) cannot lie in bytes {first} to {last} of "
            f"{file.size - start}",
        )
    return StoredTensor(name, kind, tuple(shape), start + first, file)


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _damaged(path: Path, reason: str) -> ConversionError:
    return ConversionError(f"{path} is not a valid safetensors file: {reason}")


def as_view(tensor: StoredTensor) -> "np.ndarray[Any, np.dtype[Any]]":
    """The elements of a tensor in the type of NumPy that has their bits.

    They may lie at odd addresses, because the header's length is any number.
    """
    kind = {"BF16": "<u2", "BOOL": "?"}.get(tensor.type, "u1")
    if tensor.type[0] in "IUF" and not tensor.type.startswith("F8"):
        kind = f"<{tensor.type[0].lower()}{SIZES[tensor.type]}"
    return tensor.data.view(kind).reshape(tensor.shape)


def as_array(tensor: StoredTensor) -> "np.ndarray[Any, np.dtype[Any]]":
    """The same, copied if the addresses are odd."""
    return np.require(as_view(tensor), requirements="A")
