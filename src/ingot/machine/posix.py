"""What Linux and macOS have in common: descriptors, locks, limits, process groups.

Tests replace the names `os` and `fcntl` of this module with versions that fail.
"""

import ctypes
import errno
import fcntl
import os
import resource
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

AnyPath = str | os.PathLike[str]

END_SIGNALS = (signal.SIGINT, signal.SIGTERM)
NO_WAIT = os.O_NONBLOCK  # a pipe that nobody writes to is opened at once
_CANNOT_COPY = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
NO_FOLLOW = os.O_NOFOLLOW  # a symbolic link is an error


def total_memory() -> int:
    """Bytes of memory in this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def lock_memory(address: int, size: int) -> None:
    """Read a range and keep it in memory until it is unmapped; raises `OSError`."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(size)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def lock_advice() -> str:
    """How much this process may lock in memory, and what to do if that is not enough."""
    soft, hard = (
        "any amount" if limit == resource.RLIM_INFINITY else f"{limit >> 10} KiB"
        for limit in resource.getrlimit(resource.RLIMIT_MEMLOCK)
    )
    return (
        f"this process may lock {soft} (RLIMIT_MEMLOCK; the hard limit is {hard}); raise the "
        "limit (`ulimit -l`, LimitMEMLOCK= of a service) or do not lock"
    )


def open_file(path: AnyPath, flags: int, mode: int = 0o666) -> int:
    """A descriptor that child processes do not get."""
    return os.open(path, flags | os.O_CLOEXEC, mode)


def read_at(descriptor: int, buffer: memoryview, offset: int) -> int:
    """Read into a buffer; returns how many bytes there were, at least one before the end."""
    return os.preadv(descriptor, [buffer], offset)


def copy_range(source: int, target: int, offset: int, size: int) -> int | None:
    """Let the system append bytes of a file to another one; returns how many, 0 at the end.

    None: this system, or one of the two file systems, cannot.
    """
    if not hasattr(os, "copy_file_range"):
        return None
    try:
        count: int = os.copy_file_range(source, target, size, offset)
    except OSError as error:
        if error.errno in _CANNOT_COPY:
            return None
        raise
    return count


def lock_file(descriptor: int, *, wait: bool) -> bool:
    """Lock a file until it is closed; False if another process has it and this one does not wait.

    Raises `OSError` if the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sync_file(path: Path) -> None:
    """Sync a complete file to disk."""
    descriptor = open_file(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that a rename in it survives a power failure."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:  # a folder without read permission cannot be synced
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that cannot sync folders
            raise
    finally:
        os.close(descriptor)


def set_permissions(descriptor: int, mode: int) -> None:
    """Set who may read and write an open file."""
    os.fchmod(descriptor, mode)


def link_file(target: Path, link: Path) -> None:
    """Make a symbolic link."""
    link.symlink_to(target)


def allow_open_files(wanted: int) -> int:
    """How many files this process may open, after raising its limit to `wanted` if possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if limit > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return max(limit, soft)


def new_group() -> dict[str, Any]:
    """Arguments of `Popen` for a process that Ctrl-C does not reach, and `end_group` ends."""
    return {"start_new_session": True}


def end_group(process: int, *, force: bool) -> None:
    """Ask a process of `new_group` and its children to end, or kill them."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL if force else signal.SIGTERM)


def claim_address(listening: socket.socket) -> None:
    """Let a socket have an address that a server which just ended has left."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
