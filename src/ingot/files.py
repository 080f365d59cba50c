"""Atomic file writes: a file is the complete old version or the complete new one.

A path and bytes come in. The bytes go to a draft, a hidden file next to the target. The draft is
synced to disk and renamed to the target; then the folder is synced. If anything fails, the draft is
removed. A draft is locked while its writer lives, so `sweep` removes only those of killed writers.

This module does not know what a file contains. Its system calls go through the name `os`, here and
in `ingot.machine.posix`, which tests replace with a version that fails at the n-th call.
"""

import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from ingot.errors import DiskSpaceError, FileWriteError
from ingot.machine import (
    NO_FOLLOW,
    NO_WAIT,
    copy_range,
    lock_file,
    open_file,
    read_at,
    set_permissions,
    sync_file,
    sync_folder,
)

AnyPath = str | os.PathLike[str]
Bytes = bytes | bytearray | memoryview

_DRAFT = re.compile(r"\.ingot-draft-\d+-[0-9a-f]{16}")
_NEW_FILE = 0o666  # minus the umask
_COPIED = 1 << 20  # bytes, if the system cannot copy a file itself
DISK_RESERVE = 64 << 20  # bytes of a disk that are left to others


def require_room(folder: Path, needed: int, what: str, remedy: str) -> None:
    """Raise `DiskSpaceError` if the disk of a folder, which may not exist yet, has no room."""
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if needed and needed + DISK_RESERVE > free:
        raise DiskSpaceError(
            f"{what} takes {needed / 2**30:.2f} GiB, and {folder} has {free / 2**30:.2f} GiB free; "
            f"free some space, or {remedy}"
        )


@dataclass(frozen=True, slots=True)
class FileRange:
    """Bytes of an open file, to be copied."""

    descriptor: int
    offset: int
    size: int

    def __len__(self) -> int:
        return self.size


class Draft:
    """A file to be written in a `with` block; `publish` moves it to the target.

    A draft that is not published is removed at the end of the block. If the target is a symbolic
    link, the file it points to is replaced. The permissions of a replaced file are kept.
    """

    def __init__(self, path: AnyPath, *, mode: int = _NEW_FILE) -> None:
        """`mode` sets the permissions of a new file."""
        self._shown = Path(path)  # for messages
        with _write_errors(self._shown):
            self._target = Path(os.path.realpath(_possible(path)))
        self._mode = mode
        self._path: Path | None = None  # of the draft, while it exists
        self._descriptor = -1

    def write(self, data: Bytes) -> None:
        """Append bytes."""
        rest = memoryview(data)
        with _write_errors(self._shown):
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]

    def copy(self, source: FileRange) -> None:
        """Append bytes of another file; they do not pass through this process if possible."""
        at, end = source.offset, source.offset + source.size
        with _write_errors(self._shown):
            while at < end:
                count = copy_range(source.descriptor, self._descriptor, at, end - at)
                if count is None:
                    buffer = memoryview(bytearray(min(_COPIED, end - at)))
                    count = read_at(source.descriptor, buffer, at)
                    self.write(buffer[:count])
                if count == 0:
                    raise OSError(errno.EIO, "the file that is copied became shorter")
                at += count

    def sync(self) -> None:
        """Sync to disk; `publish` does this too."""
        with _write_errors(self._shown):
            os.fsync(self._descriptor)

    def publish(self) -> None:
        """Sync the draft and rename it to the target."""
        self.sync()
        if self._path is not None:
            with _write_errors(self._shown):
                os.replace(self._path, self._target)
            self._path = None
            _sync_folder(self._target)

    def __enter__(self) -> Self:
        sweep(self._target.parent)
        try:
            with _write_errors(self._shown):
                old = _permissions(self._target)
                self._create()
                if old is not None:
                    set_permissions(self._descriptor, old)
        except BaseException:
            self._discard()
            raise
        return self

    def _create(self) -> None:
        """Create the draft and lock it; start again if a sweep removed it in between."""
        links = 0
        while links == 0:
            path = self._target.with_name(f".ingot-draft-{os.getpid()}-{secrets.token_hex(8)}")
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            self._descriptor = open_file(path, flags, self._mode)
            self._path = path
            with suppress(OSError):  # a file system without locks, where nothing is swept
                lock_file(self._descriptor, wait=True)
            links = os.fstat(self._descriptor).st_nlink
            if links == 0:
                self._discard()

    def _discard(self) -> None:
        """Remove an unpublished draft; never raises."""
        if self._path is not None:
            with suppress(OSError):
                os.unlink(self._path)
            self._path = None
        if self._descriptor >= 0:
            with suppress(OSError):  # a published file was synced before
                os.close(self._descriptor)
            self._descriptor = -1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._discard()


def write_file(path: AnyPath, pieces: Iterable[Bytes], *, mode: int = _NEW_FILE) -> None:
    """Write a file; an existing one is replaced once the new one is complete."""
    with Draft(path, mode=mode) as draft:
        for piece in pieces:
            draft.write(piece)
        draft.publish()


def move_file(source: Path, target: Path) -> None:
    """Sync a complete file and rename it to the target, in the same file system."""
    with _write_errors(target):
        sync_file(source)
        os.replace(source, target)
    _sync_folder(target)


def remove_file(path: Path) -> None:
    """Remove a file, if it exists, and sync the folder."""
    with _write_errors(path, "cannot be removed"), suppress(FileNotFoundError):
        os.unlink(path)
    _sync_folder(path)


def sweep(folder: Path) -> None:
    """Remove the drafts of killed writers; drafts in use stay."""
    with suppress(OSError):  # the next sweep tries again
        for name in os.listdir(folder):
            if _DRAFT.fullmatch(name):
                _remove_abandoned(folder / name)


def open_regular(path: AnyPath) -> BinaryIO:
    """Open a file for reading; a pipe or device, which could block, raises `OSError`."""
    descriptor = open_file(_possible(path), os.O_RDONLY | NO_WAIT)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _possible(path: AnyPath) -> AnyPath:
    """Return the path if it is valid, else raise `OSError`, as Python itself does not."""
    try:
        if b"\0" not in os.fsencode(path):
            return path
    except UnicodeEncodeError:
        pass
    raise OSError(errno.EINVAL, "no file can have this name", os.fspath(path))


def _remove_abandoned(path: Path) -> None:
    with suppress(OSError):  # it has a writer, or another sweep was faster
        descriptor = open_file(path, os.O_WRONLY | NO_WAIT | NO_FOLLOW)
        try:
            if lock_file(descriptor, wait=False):
                os.unlink(path)
        finally:
            os.close(descriptor)


def _permissions(path: Path) -> int | None:
    """Permissions of an existing regular file; None if there is no file."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    return stat.S_IMODE(mode)


def _sync_folder(path: Path) -> None:
    """Sync the folder of a file, so that a rename survives a power failure."""
    with _write_errors(path, "was written, but a power failure may undo that"):
        sync_folder(path.parent)


@contextmanager
def _write_errors(path: Path, problem: str = "cannot be written") -> Iterator[None]:
    """Turn an `OSError` into a `FileWriteError`."""
    try:
        yield
    except OSError as error:
        raise FileWriteError(path, problem, error) from error
