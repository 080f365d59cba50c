"""A file's bytes, without reading them.

A path comes in, read-only views of any range go out. The map stays alive as long as a
view of it does. A file that somebody changes in the meantime does not end the process
(native/gguf/guarded_map.h): `change` says what happened to it. It knows nothing of what
the bytes mean.
"""

import ctypes
import os
import resource
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


class MmapGguf:
    """A read-only memory map, or plain reads of the ranges asked for if mapping fails."""

    def __init__(self, path: str | os.PathLike[str], *, mapped: bool = True) -> None:
        self.path = Path(path)
        if not stat.S_ISREG(self.path.stat().st_mode):  # opening a pipe would wait forever
            raise GgufError("it is not a regular file", field="file", path=self.path)
        self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
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
        """Whether views point into the file rather than to a copy of the range."""
        return self._map is not None

    def get_slice(self, offset: int, size: int) -> NDArray[np.uint8]:
        """The bytes `offset` to `offset + size`, read-only."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise GgufError(
                f"{size} bytes from here are not inside the file ({self.size} bytes)",
                field="slice",
                offset=offset,
                path=self.path,
            )
        if self._bytes is not None:
            return self._bytes[offset : offset + size]
        if not self._closer.alive:
            raise GgufError("it is closed", field="file", path=self.path)
        return self._read(offset, size)

    def _read(self, offset: int, size: int) -> NDArray[np.uint8]:
        values = np.empty(size, np.uint8)
        rest = values.data
        while rest:
            count = os.preadv(self._descriptor, [rest], offset + size - len(rest))
            if count == 0:
                raise GgufError(
                    "the file became shorter", field="slice", offset=offset, path=self.path
                )
            rest = rest[count:]
        values.setflags(write=False)
        return values

    @property
    def change(self) -> str | None:
        """What somebody did to the file since it was opened; None: nothing that is known.

        One system call. Another file in its place is no change: this one goes on to exist for
        those who have it open (`is_replaced`).
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
            return "could not be read: the disk gave an error, or somebody cut the file for a time"
        return None

    @property
    def is_replaced(self) -> bool:
        """Whether the path leads to another file by now; not if it leads nowhere."""
        try:
            now = self.path.stat()
        except OSError:
            return False
        return (now.st_dev, now.st_ino) != (self._opened.st_dev, self._opened.st_ino)

    def prefetch(self) -> None:
        """Ask the system to read the file ahead of its use; nothing waits for it."""
        # One call, 0.1 ms for 241 MiB. The kernel reads as much as the disk's read-ahead at a
        # call; advising piece by piece was no faster here (241 MiB cold: 0.09 s either way, on
        # a disk that reads 8 MiB ahead) and costs 10 us per MiB when the file is cached.
        if self._map is not None:
            self._map.prefetch()

    def lock(self) -> None:
        """Read the file and keep it in memory as long as a view of it lives."""
        if self._bytes is None:
            raise MemoryShortageError(f"{self.path} is not memory-mapped, so it cannot be locked")
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mlock(ctypes.c_void_p(self._bytes.ctypes.data), ctypes.c_size_t(self.size)) == 0:
            return
        reason = os.strerror(ctypes.get_errno())
        soft, hard = (
            "any amount" if limit == resource.RLIM_INFINITY else f"{limit >> 10} KiB"
            for limit in resource.getrlimit(resource.RLIMIT_MEMLOCK)
        )
        raise MemoryShortageError(
            f"{self.path} cannot be locked in memory ({reason}): it has {self.size >> 10} KiB, and "
            f"this process may lock {soft} (RLIMIT_MEMLOCK; its hard limit is {hard}); raise the "
            "limit (`ulimit -l`, LimitMEMLOCK= of a service) or do without locking"
        )

    def close(self) -> None:
        """Close the file. Views that were handed out stay valid."""
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
