"""MmapGguf: the memory-mapped bytes of a file.

In: a path. Out: read-only views of any range. The map lives as long as a view of it. A file that
changes in the meantime does not crash the process (native/gguf/guarded_map.h); `change` describes
what happened. It does not know what the bytes mean.
"""

import os
import stat
import warnings
import weakref
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ingot import _native
from ingot.errors import GgufError, MemoryShortageError
from ingot.files import FileRange
from ingot.machine import lock_advice, lock_memory, open_file, read_at


class MmapGguf:
    """A read-only memory map; if mapping fails, ranges are read on demand."""

    def __init__(self, path: str | os.PathLike[str], *, mapped: bool = True) -> None:
        self.path = Path(path)
        if not stat.S_ISREG(self.path.stat().st_mode):  # opening a pipe would wait forever
            raise GgufError("not a regular file", field="file", path=self.path)
        self._descriptor = open_file(self.path, os.O_RDONLY)
        self._closer = weakref.finalize(self, os.close, self._descriptor)
        self._opened = os.fstat(self._descriptor)
        self.size = self._opened.st_size
        self._map = self._try_map() if mapped and self.size else None
        self._bytes = None if self._map is None else self._map.bytes
        self._change: str | None = None

    def _try_map(self) -> _native.GuardedMap | None:
        try:
            return _native.GuardedMap(self._descriptor, self.size)
        except OSError as error:
            warnings.warn(
                f"{self.path} cannot be memory-mapped ({error}); reading it instead",
                RuntimeWarning,
                stacklevel=3,
            )
            return None

    @property
    def is_mapped(self) -> bool:
        """Whether views point into the file and not to a copy of the range."""
        return self._map is not None

    def get_slice(self, offset: int, size: int) -> NDArray[np.uint8]:
        """The bytes `offset` to `offset + size`, read-only."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise GgufError(
                f"{size} bytes from here extend beyond the file ({self.size} bytes)",
                field="slice",
                offset=offset,
                path=self.path,
            )
        if self._bytes is not None:
            return self._bytes[offset : offset + size]
        if not self._closer.alive:
            raise GgufError("the file is closed", field="file", path=self.path)
        return self._read(offset, size)

    def get_range(self, offset: int, size: int) -> FileRange | NDArray[np.uint8]:
        """The same bytes for a copy into another file: not read yet, if the file is open."""
        if self._closer.alive and 0 <= offset <= offset + size <= self.size:
            return FileRange(self._descriptor, offset, size)
        return self.get_slice(offset, size)

    def _read(self, offset: int, size: int) -> NDArray[np.uint8]:
        values = np.empty(size, np.uint8)
        rest = values.data
        while rest:
            count = read_at(self._descriptor, rest, offset + size - len(rest))
            if count == 0:
                raise GgufError(
                    "the file became shorter", field="slice", offset=offset, path=self.path
                )
            rest = rest[count:]
        values.setflags(write=False)
        return values

    @property
    def change(self) -> str | None:
        """How the file changed since it was opened; None if no change is known.

        One system call. Another file at the same path is not a change, because the open file
        continues to exist (`is_replaced`).
        """
        if self._change is None:
            self._change = self._find_change()
        return self._change

    def _find_change(self) -> str | None:
        if self._closer.alive:
            now = os.fstat(self._descriptor)
            if now.st_size < self.size:
                return f"became shorter while it was in use ({now.st_size} of {self.size} bytes)"
            if (now.st_size, now.st_mtime_ns) != (self.size, self._opened.st_mtime_ns):
                return "was written to while it was in use"
        if self._map is not None and self._map.is_damaged:
            return "could not be read: a disk error, or the file was truncated for a while"
        return None

    @property
    def is_replaced(self) -> bool:
        """Whether the path is now another file; False if there is none."""
        try:
            now = self.path.stat()
        except OSError:
            return False
        return (now.st_dev, now.st_ino) != (self._opened.st_dev, self._opened.st_ino)

    def prefetch(self) -> None:
        """Ask the system to read the file ahead of its use; does not wait."""
        # One call, 0.1 ms for 241 MiB. The kernel reads as much as the read-ahead of the disk per
        # call. Advising piece by piece was not faster (241 MiB cold: 0.09 s either way, with a
        # read-ahead of 8 MiB) and costs 10 us per MiB if the file is cached.
        if self._map is not None:
            self._map.prefetch()

    def release(self, size: int) -> None:
        """Give back the memory of the first bytes; they are read again if they are needed again."""
        if self._map is not None:
            self._map.release(size)

    def lock(self) -> None:
        """Read the file and lock it in memory as long as a view of it lives."""
        if self._bytes is None:
            raise MemoryShortageError(f"{self.path} is not memory-mapped, so it cannot be locked")
        try:
            lock_memory(self._bytes.ctypes.data, self.size)
        except OSError as error:
            raise MemoryShortageError(
                f"{self.path} cannot be locked in memory ({error.strerror}): it has "
                f"{self.size >> 10} KiB, but {lock_advice()}"
            ) from None

    def close(self) -> None:
        """Close the file. Existing views stay valid."""
        self._map = self._bytes = None
        self._closer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
