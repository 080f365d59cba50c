"""GgufWriter: writes GGUF files, version 3, as one file or in parts.

In: metadata and tensors. Out: files that any GGUF reader opens; they get their final names only
when they are complete. Tensor data is streamed: at most one tensor, or one piece of it, is in
memory, none if it is copied from another file. It does not quantize (`quant/` does).
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from pathlib import Path
from struct import pack
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot.errors import GgufError
from ingot.files import Draft, FileRange, remove_file
from ingot.gguf.splits import COUNT_KEY, NUMBER_KEY, TENSORS_KEY, part_path
from ingot.gguf.types import GgmlType, ValueType
from ingot.gguf.value_encoding import Writable, encode_string, encode_value

Piece: TypeAlias = NDArray[Any] | FileRange  # of a tensor's data

_VERSION = 3
_ALIGNMENT_KEY = "general.alignment"
_DEFAULT_ALIGNMENT = 32
_MOST_KEY_BYTES = 65535
_MOST_NAME_BYTES = 63  # llama.cpp cannot open files with longer ones
_MOST_DIMENSIONS = 4
_MOST_PARTS = 65535  # split.count is a UINT16
_RESERVED: Final = frozenset({_ALIGNMENT_KEY, NUMBER_KEY, COUNT_KEY, TENSORS_KEY})
_PLAIN_TYPES: Final = ("F32", "F16", "F64", "I8", "I16", "I32", "I64")


def _plain_type(dtype: np.dtype[Any]) -> GgmlType | None:
    """The tensor type of a NumPy type, if there is one."""
    name = f"{dtype.kind.upper()}{dtype.itemsize * 8}"
    return GgmlType[name] if name in _PLAIN_TYPES else None


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    type: GgmlType
    shape: tuple[int, ...]
    produce: Callable[[], Iterable[Piece]]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) // self.type.block_size * self.type.block_bytes

    def blocks(self) -> Iterator[memoryview | FileRange]:
        """The data in the layout of the file, piece by piece."""
        written = 0
        for values in self.produce():
            piece = values if isinstance(values, FileRange) else self._bytes_of(values)
            written += len(piece)
            if written <= self.nbytes:
                yield piece
        if written != self.nbytes:
            raise GgufError(
                f"{written} bytes of data, but {self.type.name} {self.shape} needs {self.nbytes}",
                field=self.name,
            )

    def _bytes_of(self, values: NDArray[Any]) -> memoryview:
        if values.dtype != np.uint8 and _plain_type(values.dtype) is not self.type:
            raise GgufError(
                f"{values.dtype} values are not {self.type.name}; "
                "give values of that type or its blocks as uint8",
                field=self.name,
            )
        flat = np.ascontiguousarray(values, values.dtype.newbyteorder("<")).reshape(-1)
        return flat.view(np.uint8).data


class GgufWriter:
    """Collects metadata and tensors, then writes them with one call.

    With `max_bytes` (of tensor data) or `max_tensors` per file, a model that does not fit one file
    is split into `x-00001-of-00003.gguf` and so on.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        alignment: int = _DEFAULT_ALIGNMENT,
        max_bytes: int | None = None,
        max_tensors: int | None = None,
    ) -> None:
        self.path = Path(path)
        if not 0 < alignment < 2**32 or alignment & (alignment - 1):
            raise GgufError(f"{alignment} is not a power of two", field=_ALIGNMENT_KEY)
        for field, limit in (("max_bytes", max_bytes), ("max_tensors", max_tensors)):
            if limit is None:
                continue
            if limit < 1:
                raise GgufError(f"{limit} leaves no room for a tensor", field=field)
            if self.path.suffix != ".gguf":
                raise GgufError(
                    "a split file's name must end in .gguf", field=field, path=self.path
                )
        self._alignment = alignment
        self._max_bytes = max_bytes
        self._max_tensors = max_tensors
        self._entries: dict[str, bytes] = {}
        self._tensors: dict[str, _Tensor] = {}
        self._breaks: set[int] = set()  # tensors that begin a part

    def add(self, key: str, value: Writable, type: ValueType | None = None) -> None:
        """Add a key. `type` is that of the value or of the elements of an array."""
        if key in _RESERVED:
            raise GgufError("the writer sets this key itself", field=key)
        if key in self._entries:
            raise GgufError("this key was added before", field=key)
        _check_name(key, "key", _MOST_KEY_BYTES)
        self._entries[key] = encode_value(key, value, type)

    def add_tensor(
        self,
        name: str,
        values: NDArray[Any],
        type: GgmlType | None = None,
        shape: Sequence[int] | None = None,
    ) -> None:
        """Add a tensor of float or integer values, or of blocks of a given type as uint8.

        The shape of blocks in rows (last dimension in bytes) is known; flat blocks, such as the
        data of a `LazyTensor`, need `shape`.
        """
        kind = type if type is not None else _plain_type(values.dtype)
        if kind is None:
            raise GgufError(f"{values.dtype} data needs a type", field=name)
        if shape is None:
            shape = values.shape
            if values.dtype == np.uint8 and values.ndim:
                if shape[-1] % kind.block_bytes:
                    raise GgufError(
                        f"rows of {shape[-1]} bytes are not whole blocks of {kind.block_bytes}",
                        field=name,
                    )
                shape = (*shape[:-1], shape[-1] // kind.block_bytes * kind.block_size)
        self.add_lazy_tensor(name, kind, shape, lambda: values)

    def add_lazy_tensor(
        self, name: str, type: GgmlType, shape: Sequence[int], produce: Callable[[], Piece]
    ) -> None:
        """Add a tensor whose data `produce` returns when it is written."""
        self.add_streamed_tensor(name, type, shape, lambda: (produce(),))

    def add_streamed_tensor(
        self,
        name: str,
        type: GgmlType,
        shape: Sequence[int],
        produce: Callable[[], Iterable[Piece]],
    ) -> None:
        """Add a tensor whose data `produce` returns in pieces; it need not fit in memory.

        A piece may be a part of another file, which is copied.
        """
        if name in self._tensors:
            raise GgufError("this tensor was added before", field=name)
        _check_name(name, "tensor_name", _MOST_NAME_BYTES)
        if not 1 <= len(shape) <= _MOST_DIMENSIONS or any(size < 1 for size in shape):
            raise GgufError(
                f"shape {tuple(shape)}: 1 to 4 dimensions are allowed, none of them 0", field=name
            )
        if shape[-1] % type.block_size:
            raise GgufError(
                f"rows of {shape[-1]} are not whole blocks of {type.block_size} ({type.name})",
                field=name,
            )
        self._tensors[name] = _Tensor(name, type, tuple(map(int, shape)), produce)

    def begin_part(self) -> None:
        """Let the tensors that follow be in a new file."""
        if self.path.suffix != ".gguf":
            raise GgufError("a split file's name must end in .gguf", field="path", path=self.path)
        self._breaks.add(len(self._tensors))

    @property
    def data_bytes(self) -> int:
        """The size of all tensors in the file."""
        return sum(t.nbytes + self._padding(t.nbytes) for t in self._tensors.values())

    def write(self, progress: Callable[[int], None] | None = None) -> list[Path]:
        """Write everything; `progress(n)` is told of each piece: their sum is `data_bytes`.

        Existing files are replaced only when all parts are complete.

        Files are replaced one by one. The first of several parts is removed before and written
        last, so parts of two models cannot be opened as one.
        """
        parts = self._partition()
        paths = [self.path]
        if len(parts) > 1:
            paths = [part_path(self.path, number, len(parts)) for number in range(len(parts))]
        with ExitStack() as stack:
            drafts = []
            for number, (path, tensors) in enumerate(zip(paths, parts, strict=True)):
                draft = stack.enter_context(Draft(path))
                self._write_part(draft, tensors, self._entries_of(number, len(parts)), progress)
                draft.sync()
                drafts.append(draft)
            if len(drafts) > 1:
                remove_file(paths[0])  # old and new parts are never opened together
            for draft in reversed(drafts):
                draft.publish()
        return paths

    def _padding(self, position: int) -> int:
        return -position % self._alignment

    def _partition(self) -> list[list[_Tensor]]:
        parts: list[list[_Tensor]] = [[]]
        room = self._max_bytes
        for number, tensor in enumerate(self._tensors.values()):
            size = tensor.nbytes + self._padding(tensor.nbytes)
            full = (
                number in self._breaks
                or len(parts[-1]) == self._max_tensors
                or (room is not None and size > room)
            )
            if full and parts[-1]:
                parts.append([])
                room = self._max_bytes
            parts[-1].append(tensor)
            if room is not None:
                room -= size
        if len(parts) > _MOST_PARTS:
            raise GgufError(
                f"{len(parts)} parts; at most {_MOST_PARTS} are possible", field=COUNT_KEY
            )
        return parts

    def _entries_of(self, part: int, parts: int) -> dict[str, bytes]:
        """The keys of a part: all in the first, in the others those that a reader needs."""
        entries = {}
        if self._alignment != _DEFAULT_ALIGNMENT:
            entries[_ALIGNMENT_KEY] = encode_value(
                _ALIGNMENT_KEY, self._alignment, ValueType.UINT32
            )
        if part == 0:
            entries |= self._entries
        if parts > 1:
            for key, value, kind in (
                (NUMBER_KEY, part, ValueType.UINT16),
                (COUNT_KEY, parts, ValueType.UINT16),
                (TENSORS_KEY, len(self._tensors), ValueType.INT32),
            ):
                entries[key] = encode_value(key, value, kind)
        return entries

    def _write_part(
        self,
        file: Draft,
        tensors: list[_Tensor],
        entries: dict[str, bytes],
        progress: Callable[[int], None] | None,
    ) -> None:
        file.write(self._header_of(tensors, entries))
        for tensor in tensors:
            for piece in tensor.blocks():
                if isinstance(piece, FileRange):
                    file.copy(piece)
                else:
                    file.write(piece)
                if progress is not None:
                    progress(len(piece))
            padding = self._padding(tensor.nbytes)
            file.write(bytes(padding))
            if progress is not None and padding:
                progress(padding)

    def _header_of(self, tensors: list[_Tensor], entries: dict[str, bytes]) -> bytes:
        header = bytearray(b"GGUF" + pack("<IQQ", _VERSION, len(tensors), len(entries)))
        for key, value in entries.items():
            header += encode_string(key.encode()) + value
        offset = 0
        for tensor in tensors:
            dimensions = tensor.shape[::-1]
            header += encode_string(tensor.name.encode())
            header += pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
            header += pack("<IQ", tensor.type, offset)
            offset += tensor.nbytes + self._padding(tensor.nbytes)
        return bytes(header + bytes(self._padding(len(header))))

    def header(self) -> bytes:
        """What one file with everything would have before its tensor data."""
        return self._header_of(list(self._tensors.values()), self._entries_of(0, 1))


def _check_name(name: str, field: str, most: int) -> None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise GgufError(f"{name!r} cannot be encoded as UTF-8", field=field) from None
    if not 1 <= size <= most:
        raise GgufError(f"{name[:80]!r} has {size} bytes; 1 to {most} are allowed", field=field)
