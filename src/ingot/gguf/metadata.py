"""Typed metadata, read on demand from the bytes of a header.

In: a `Header`. Out: scalars as Python values, numeric arrays as NumPy views of the header, arrays
of strings as `StringArray`. It does not know what a key means.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from struct import unpack_from
from typing import Any, Final, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from ingot.errors import GgufError
from ingot.gguf.header import Entry, Header
from ingot.gguf.types import ValueType

D = TypeVar("D")
V = TypeVar("V")


class _Missing(Enum):
    REQUIRED = 0


_REQUIRED: Final = _Missing.REQUIRED


def _bytes_at(data: NDArray[np.uint8], offset: int) -> bytes:
    """The bytes after a length prefix; the scan has checked the length."""
    (size,) = unpack_from("<Q", data.data, offset)
    return data[offset + 8 : offset + 8 + size].tobytes()


class StringArray(Sequence[str]):
    """An array of strings that are decoded on demand.

    `data` are the bytes of the header; `offsets` has the offset of each entry's 8-byte
    little-endian length prefix, which the bytes of the entry follow. Native code reads both.
    """

    __slots__ = ("data", "offsets")

    def __init__(self, data: NDArray[np.uint8], offsets: NDArray[np.uint64]) -> None:
        self.data = data
        self.offsets = offsets

    def raw(self, index: int) -> bytes:
        """The bytes of one entry, maybe invalid UTF-8."""
        return _bytes_at(self.data, int(self.offsets[index]))

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> "StringArray": ...
    def __getitem__(self, index: int | slice) -> "str | StringArray":
        if isinstance(index, slice):
            return StringArray(self.data, self.offsets[index])
        return self.raw(index).decode("utf-8", "replace")

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[str]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        return f"StringArray({len(self)} entries)"


Value = bool | int | float | str | NDArray[Any] | StringArray


class Metadata(Mapping[str, Value]):
    """The keys of a file and their values, read-only."""

    def __init__(self, header: Header, path: Path) -> None:
        self._data = header.data
        self._path = path
        self._entries = {entry.key: entry for entry in header.entries}

    def entry(self, key: str) -> Entry:
        """The type and the offset of the value of a key."""
        if key not in self._entries:
            raise GgufError("this key is missing", field=key, path=self._path)
        return self._entries[key]

    def __getitem__(self, key: str) -> Value:
        entry = self._entries[key]
        if entry.strings is not None:
            return StringArray(self._data, entry.strings)
        if entry.type is ValueType.STRING:
            return _bytes_at(self._data, entry.offset).decode("utf-8", "replace")
        values: NDArray[Any] = np.ndarray(
            entry.count, entry.element_type.dtype, self._data, entry.offset
        )
        if entry.type is ValueType.ARRAY:
            return values
        scalar: bool | int | float = values[0].item()
        return scalar

    def raw_string(self, key: str) -> bytes:
        """The bytes of a string, maybe invalid UTF-8."""
        return _bytes_at(self._data, self.entry(key).offset)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Metadata({len(self)} keys of {self._path})"

    @overload
    def string(self, key: str) -> str: ...
    @overload
    def string(self, key: str, default: D) -> str | D: ...
    def string(self, key: str, default: object = _REQUIRED) -> object:
        """A string; invalid UTF-8 is replaced."""
        return self._get(key, default, "a string", lambda value: isinstance(value, str))

    @overload
    def integer(self, key: str) -> int: ...
    @overload
    def integer(self, key: str, default: D) -> int | D: ...
    def integer(self, key: str, default: object = _REQUIRED) -> object:
        """An integer of any width."""
        return self._get(key, default, "an integer", lambda value: type(value) is int)

    @overload
    def number(self, key: str) -> float: ...
    @overload
    def number(self, key: str, default: D) -> float | D: ...
    def number(self, key: str, default: object = _REQUIRED) -> object:
        """A float or an integer, as a float."""
        value = self._get(key, default, "a number", lambda value: type(value) in (int, float))
        return float(value) if key in self._entries else value

    @overload
    def boolean(self, key: str) -> bool: ...
    @overload
    def boolean(self, key: str, default: D) -> bool | D: ...
    def boolean(self, key: str, default: object = _REQUIRED) -> object:
        """A bool."""
        return self._get(key, default, "a bool", lambda value: isinstance(value, bool))

    @overload
    def strings(self, key: str) -> StringArray: ...
    @overload
    def strings(self, key: str, default: D) -> StringArray | D: ...
    def strings(self, key: str, default: object = _REQUIRED) -> object:
        """An array of strings."""
        return self._get(
            key, default, "an array of strings", lambda value: isinstance(value, StringArray)
        )

    @overload
    def array(self, key: str) -> NDArray[Any]: ...
    @overload
    def array(self, key: str, default: D) -> NDArray[Any] | D: ...
    def array(self, key: str, default: object = _REQUIRED) -> object:
        """An array of numbers or bools: a view of the header."""
        return self._get(
            key, default, "an array of numbers", lambda value: isinstance(value, np.ndarray)
        )

    def _get(self, key: str, default: object, wanted: str, accepts: Callable[[Value], bool]) -> Any:
        if key not in self._entries and default is not _REQUIRED:
            return default
        entry = self.entry(key)
        value = self[key]
        if accepts(value):
            return value
        found = entry.type.name.lower()
        if entry.type is ValueType.ARRAY:
            found = f"array of {entry.element_type.name.lower()}"
        raise GgufError(
            f"expected {wanted}, but the file has {found}",
            field=key,
            offset=entry.offset,
            path=self._path,
        )
