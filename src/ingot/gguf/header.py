"""The header of one file, scanned natively and checked against the file size.

In: a `MmapGguf`. Out: a `Header` of keys, tensors and byte offsets. Its bytes are a copy, so the
vocabulary stays the same if the file changes. Values are created on demand (`metadata.py`), tensors
stay in the file (`tensor.py`).
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingot import _native
from ingot.errors import GgufError
from ingot.gguf.mmap import MmapGguf
from ingot.gguf.types import GgmlType, ValueType

_FIRST_READ = 1 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """One metadata key: the type and the offset of its value."""

    key: str
    type: ValueType
    element_type: ValueType  # of an array; else the same as `type`
    count: int  # elements of an array; else 1
    offset: int  # of the value; for a string, of its length prefix
    strings: NDArray[np.uint64] | None  # of an array of strings: each one's length prefix


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: type, shape, and the offset of its data."""

    name: str
    type: GgmlType
    shape: tuple[int, ...]  # NumPy's order: the contiguous dimension last
    offset: int  # from the start of the file
    nbytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """Everything in a file before its tensor data."""

    version: int
    alignment: int
    data_start: int
    data: NDArray[np.uint8]  # the header's own bytes
    entries: tuple[Entry, ...]
    tensors: tuple[TensorInfo, ...]


def read_header(file: MmapGguf) -> Header:
    """Scan the header of a file; `GgufError` if it is invalid."""
    return _header(*(_scan_map(file) if file.is_mapped else _scan_reads(file)))


def parse_header(data: NDArray[np.uint8], size: int, path: Path) -> Header:
    """Scan the beginning of a file of so many bytes; `GgufError` if it is invalid."""
    scanned = _native.scan_gguf(data, size, str(path))
    if scanned is None:
        raise GgufError("the header is longer than the data", field="header", path=path)
    return _header(data, scanned)


def _header(data: NDArray[np.uint8], scanned: "_native.ScannedHeader") -> Header:
    version, alignment, end, data_start, entries, tensors = scanned
    return Header(
        version=version,
        alignment=alignment,
        data_start=data_start,
        data=data[:end],
        entries=tuple(
            Entry(key, ValueType(kind), ValueType(element), count, at, strings)
            for key, kind, element, count, at, strings in entries
        ),
        tensors=tuple(
            TensorInfo(name, GgmlType(kind), shape, at, nbytes)
            for name, kind, shape, at, nbytes in tensors
        ),
    )


def _scan_map(file: MmapGguf) -> "tuple[NDArray[np.uint8], _native.ScannedHeader]":
    """A copy of the header, and the result of its scan."""
    # Scanning the map finds the length of the header. The result comes from a scan of the copy,
    # because the file may change in between.
    whole = file.get_slice(0, file.size)
    found = _native.scan_gguf(whole, file.size, str(file.path))
    if found is not None:
        _, _, end, *_ = found
        data = whole[:end].copy()
        data.setflags(write=False)
        file.release(end)
        scanned = _native.scan_gguf(data, file.size, str(file.path))
        if scanned is not None:
            return data, scanned
    raise GgufError("the file changed while it was read", field="header", path=file.path)


def _scan_reads(file: MmapGguf) -> "tuple[NDArray[np.uint8], _native.ScannedHeader]":
    """The same by plain reads: larger pieces until the header is complete."""
    size = min(file.size, _FIRST_READ)
    while True:
        data = file.get_slice(0, size)
        scanned = _native.scan_gguf(data, file.size, str(file.path))
        if scanned is not None:
            return data, scanned
        size = min(file.size, 4 * size)
