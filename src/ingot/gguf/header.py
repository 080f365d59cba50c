"""The header of one file, scanned natively and checked against the file's size.

A `MmapGguf` comes in; a `Header` of keys, tensors and byte positions goes out. Values
stay in the file: `metadata.py` and `tensor.py` make them when they are asked for.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingot import _native
from ingot.gguf.mmap import MmapGguf
from ingot.gguf.types import GgmlType, ValueType

_FIRST_READ = 1 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """One metadata key: what its value is and where it lies."""

    key: str
    type: ValueType
    element_type: ValueType  # of an array; otherwise the same as `type`
    count: int  # elements of an array; otherwise 1
    offset: int  # of the value; for a string, of its length prefix
    strings: NDArray[np.uint64] | None  # of an array of strings: each one's length prefix


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: what it is and where its data lie."""

    name: str
    type: GgmlType
    shape: tuple[int, ...]  # NumPy's order: the contiguous dimension last
    offset: int  # from the start of the file
    nbytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """All that a file says before its tensor data."""

    version: int
    alignment: int
    data_start: int
    data: NDArray[np.uint8]  # the header's own bytes
    entries: tuple[Entry, ...]
    tensors: tuple[TensorInfo, ...]


def read_header(file: MmapGguf) -> Header:
    """Scan a file's header; a bad file raises `GgufError`."""
    # A map costs nothing to look at as a whole. Plain reads begin with a piece and take a
    # larger one while the header goes on.
    size = file.size if file.is_mapped else min(file.size, _FIRST_READ)
    while True:
        scanned = _native.scan_gguf(file.get_slice(0, size), file.size, str(file.path))
        if scanned is not None:
            break
        size = min(file.size, 4 * size)
    version, alignment, end, data_start, entries, tensors = scanned
    return Header(
        version=version,
        alignment=alignment,
        data_start=data_start,
        data=file.get_slice(0, end),
        entries=tuple(
            Entry(key, ValueType(kind), ValueType(element), count, at, strings)
            for key, kind, element, count, at, strings in entries
        ),
        tensors=tuple(
            TensorInfo(name, GgmlType(kind), shape, at, nbytes)
            for name, kind, shape, at, nbytes in tensors
        ),
    )
