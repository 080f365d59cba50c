"""Files that are written whole or not at all, and read only if they are files.

In come a path and bytes. They go to a draft, which is a hidden file beside the target. Then the
draft is synced to the disk, renamed to the target, and the folder is synced. Whatever fails, the
target is the old file or the new one, and the draft is removed. A draft is locked for as long as
its writer lives, so `sweep` can tell those of killed writers from those that are being written.

This module does not know what a file contains. All its calls to the system go through its names
`os` and `fcntl`: tests put twins there that fail at the n-th call.
"""

import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from ingot.errors import FileWriteError

AnyPath = str | os.PathLike[str]
Bytes = bytes | bytearray | memoryview

_DRAFT = re.compile(r"\.ingot-draft-\d+-[0-9a-f]{16}")
_NEW_FILE = 0o666  # less what the umask takes away


class Draft:
    """A file that is being written, in a `with` block; `publish` puts it in the target's place.

    A draft that was not published is removed at the end of the block. If the target is a link,
    the file that it leads to is replaced. A file that is replaced passes on its permissions.
    """

    def __init__(self, path: AnyPath, *, mode: int = _NEW_FILE) -> None:
        """`mode` is for the permissions of a new file."""
        self._shown = Path(path)  # as messages name it
        with _telling(self._shown):
            self._target = Path(os.path.realpath(_possible(path)))
        self._mode = mode
        self._path: Path | None = None  # of the draft, while it is there
        self._descriptor = -1

    def write(self, data: Bytes) -> None:
        """Add bytes."""
        rest = memoryview(data)
        with _telling(self._shown):
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]

    def sync(self) -> None:
        """Have everything on the disk; `publish` does it, too."""
        with _telling(self._shown):
            os.fsync(self._descriptor)

    def publish(self) -> None:
        """Put the file in its place, for good."""
        self.sync()
        if self._path is not None:
            with _telling(self._shown):
                os.replace(self._path, self._target)
            self._path = None
            _sync_folder(self._target)

    def __enter__(self) -> Self:
        sweep(self._target.parent)
        try:
            with _telling(self._shown):
                old = _permissions(self._target)
                self._create()
                if old is not None:
                    os.fchmod(self._descriptor, old)
        except BaseException:
            self._discard()
            raise
        return self

    def _create(self) -> None:
        """Make the draft and lock it, before a sweeper takes it for one that was left."""
        links = 0
        while links == 0:
            path = self._target.with_name(f".ingot-draft-{os.getpid()}-{secrets.token_hex(8)}")
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._descriptor = os.open(path, flags, self._mode)
            self._path = path
            with suppress(OSError):  # a file system without locks; nobody sweeps there
                fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            links = os.fstat(self._descriptor).st_nlink
            if links == 0:
                self._discard()

    def _discard(self) -> None:
        """Remove what was not published, whatever else has failed."""
        if self._path is not None:
            with suppress(OSError):
                os.unlink(self._path)
            self._path = None
        if self._descriptor >= 0:
            with suppress(OSError):  # a file that matters was synced before
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
    """Write a file; one that is there already is replaced when the new one is complete."""
    with Draft(path, mode=mode) as draft:
        for piece in pieces:
            draft.write(piece)
        draft.publish()


def move_file(source: Path, target: Path) -> None:
    """Put a complete file in its place, in the same file system, for good."""
    with _telling(target):
        descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(source, target)
    _sync_folder(target)


def remove_file(path: Path) -> None:
    """Remove a file, for good; it need not exist."""
    with _telling(path, "cannot be removed"), suppress(FileNotFoundError):
        os.unlink(path)
    _sync_folder(path)


def sweep(folder: Path) -> None:
    """Remove the drafts of writers that were killed; those that are being written stay."""
    with suppress(OSError):  # what cannot be swept now is swept another time
        for name in os.listdir(folder):
            if _DRAFT.fullmatch(name):
                _remove_abandoned(folder / name)


def open_regular(path: AnyPath) -> BinaryIO:
    """Open a file to read it; a pipe or a device, which could block, is an `OSError`."""
    descriptor = os.open(_possible(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _possible(path: AnyPath) -> AnyPath:
    """The path, if a file can have it; Python's own error is no `OSError`."""
    try:
        if b"\0" not in os.fsencode(path):
            return path
    except UnicodeEncodeError:
        pass
    raise OSError(errno.EINVAL, "no file can have this name", os.fspath(path))


def _remove_abandoned(path: Path) -> None:
    with suppress(OSError):  # it has a writer, or another sweeper was faster
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
        finally:
            os.close(descriptor)


def _permissions(path: Path) -> int | None:
    """Those of the file that is there, which must be a regular one; None if there is none."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    return stat.S_IMODE(mode)


def _sync_folder(path: Path) -> None:
    """Have the name of a file on the disk."""
    with _telling(path, "is in its place, but a power failure may undo that"):
        try:
            descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except PermissionError:  # a folder that can be written and not read cannot be synced
            return
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # a file system that syncs no folders
                raise
        finally:
            os.close(descriptor)


@contextmanager
def _telling(path: Path, problem: str = "cannot be written") -> Iterator[None]:
    """Turn what the system says into an error of ours."""
    try:
        yield
    except OSError as error:
        raise FileWriteError(path, problem, error) from error
