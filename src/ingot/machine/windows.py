"""What Windows has instead of POSIX, by its own functions.

Files are opened in a way that lets others rename and remove them, as on other systems. Locks cover
one byte that no file is long enough to have: on Windows a locked range cannot be read by others.
"""

import ctypes
import functools
import io
import mmap
import msvcrt
import operator
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import winreg
from contextlib import suppress
from pathlib import Path
from typing import Any

from ingot.machine.cpu import Cache, Cpu

assert sys.platform == "win32"  # so that mypy checks this module only for Windows

AnyPath = str | os.PathLike[str]

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGBREAK)
NO_WAIT = 0  # there are no pipes among files
NO_FOLLOW = 0
CHOOSES_PAGES = False

_LOCKED_BYTE = 1 << 62
_POLL_SECONDS = 0.1  # a lock that is waited for in the kernel could not be interrupted
_FAIL_IMMEDIATELY, _EXCLUSIVE = 1, 2  # LockFileEx
_LOCK_VIOLATION = 33
_GENERIC_READ, _GENERIC_WRITE = 0x80000000, 0x40000000
_SHARE_ALL = 7  # read, write, delete
_CREATE_NEW, _OPEN_EXISTING, _OPEN_ALWAYS = 1, 3, 4
_NORMAL = 0x80
_BELOW_NORMAL = -1  # SetThreadPriority
_INVALID = ctypes.c_void_p(-1).value
_CORE, _CACHE = 0, 2  # LOGICAL_PROCESSOR_RELATIONSHIP
_UNIFIED, _DATA = 0, 2  # PROCESSOR_CACHE_TYPE
_FIRST_CPU = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
_SLACK = 64 << 20  # bytes of the working set beyond what is locked

_READING = threading.Lock()  # a descriptor has one position, which all threads share


class _Overlapped(ctypes.Structure):
    _fields_ = (
        ("internal", ctypes.c_void_p),
        ("internal_high", ctypes.c_void_p),
        ("offset", ctypes.c_uint32),
        ("offset_high", ctypes.c_uint32),
        ("event", ctypes.c_void_p),
    )


class _MemoryStatus(ctypes.Structure):
    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("total", ctypes.c_uint64),
        ("available", ctypes.c_uint64),
        ("total_page_file", ctypes.c_uint64),
        ("available_page_file", ctypes.c_uint64),
        ("total_virtual", ctypes.c_uint64),
        ("available_virtual", ctypes.c_uint64),
        ("available_extended", ctypes.c_uint64),
    )


class _CacheDescriptor(ctypes.Structure):
    _fields_ = (
        ("level", ctypes.c_uint8),
        ("associativity", ctypes.c_uint8),
        ("line_size", ctypes.c_uint16),
        ("size", ctypes.c_uint32),
        ("type", ctypes.c_int),
    )


class _Of(ctypes.Union):
    _fields_ = (("cache", _CacheDescriptor), ("room", ctypes.c_uint64 * 2))


class _Relation(ctypes.Structure):
    """What some CPUs share; of 64 CPUs at most."""

    _fields_ = (("cpus", ctypes.c_size_t), ("relation", ctypes.c_int), ("of", _Of))


def _kernel(name: str, result: Any = ctypes.c_int) -> Any:
    function = getattr(ctypes.WinDLL("kernel32", use_last_error=True), name)
    function.restype = result
    return function


def _this_process() -> ctypes.c_void_p:
    return ctypes.c_void_p(_kernel("GetCurrentProcess", ctypes.c_void_p)())


def usable_cores() -> int:
    """The CPUs that this process may use; all of them if it may use more than one group of 64."""
    return _affinity().bit_count() or os.cpu_count() or 1


def default_threads() -> int:
    """One thread for each core that this process may use; of more than 64 CPUs, for each CPU."""
    ours = _affinity()
    cores = [relation.cpus for relation in _relations() if relation.relation == _CORE]
    alone = ours & ~functools.reduce(operator.or_, cores, 0)
    return sum(1 for core in cores if core & ours) + alone.bit_count() or usable_cores()


def _affinity() -> int:
    """The CPUs that this process may use, a bit for each; none if they are of several groups."""
    ours, all_cores = ctypes.c_size_t(), ctypes.c_size_t()
    _kernel("GetProcessAffinityMask")(_this_process(), ctypes.byref(ours), ctypes.byref(all_cores))
    return ours.value


def read_cpu(_root: Path) -> Cpu:
    """The CPU of this machine; the number of its cores only if it has no more than 64 CPUs."""
    found = _relations()
    cores = [relation.cpus.bit_count() for relation in found if relation.relation == _CORE]
    caches = (
        Cache(relation.of.cache.level, relation.of.cache.size, relation.cpus.bit_count())
        for relation in found
        if relation.relation == _CACHE and relation.cpus & 1
        if relation.of.cache.type in (_UNIFIED, _DATA)
    )
    by_level = sorted(caches, key=lambda cache: cache.level)
    return Cpu(_cpu_name(), len(cores) if sum(cores) == os.cpu_count() else None, tuple(by_level))


def _cpu_name() -> str | None:
    try:
        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, _FIRST_CPU) as key:
            name, _ = winreg.QueryValueEx(key, "ProcessorNameString")
    except OSError:
        return None
    return str(name).strip()


def _relations() -> list[_Relation]:
    size = ctypes.c_uint32(0)
    _kernel("GetLogicalProcessorInformation")(None, ctypes.byref(size))  # tells the size
    found = (_Relation * (size.value // ctypes.sizeof(_Relation)))()
    done = _kernel("GetLogicalProcessorInformation")(found, ctypes.byref(size))
    return list(found) if done else []


def total_memory() -> int:
    """Bytes of memory in this machine."""
    return int(_memory().total)


def available_memory() -> int:
    """Bytes the system can give without swapping."""
    return int(_memory().available)


def _memory() -> _MemoryStatus:
    status = _MemoryStatus()
    status.length = ctypes.sizeof(status)
    if not _kernel("GlobalMemoryStatusEx")(ctypes.byref(status)):
        raise ctypes.WinError(ctypes.get_last_error())
    return status


def lock_memory(address: int, size: int) -> None:
    """Read a range and keep it in memory until it is unmapped; raises `OSError`."""
    least, most = (ctypes.c_size_t(size + slack) for slack in (_SLACK, 2 * _SLACK))
    if not _kernel("SetProcessWorkingSetSize")(_this_process(), least, most) or not _kernel(
        "VirtualLock"
    )(ctypes.c_void_p(address), ctypes.c_size_t(size)):
        raise ctypes.WinError(ctypes.get_last_error())


def lock_advice() -> str:
    """What this process may lock in memory, and what to do if that is not enough."""
    return "a process may lock what fits into free memory; free some or do not lock"


def choose_pages(_memory: mmap.mmap, *, huge: bool) -> None:
    """Do nothing: huge pages need a privilege that users do not have."""


def lower_priority() -> None:
    """Let other threads go before this one."""
    thread = ctypes.c_void_p(_kernel("GetCurrentThread", ctypes.c_void_p)())
    _kernel("SetThreadPriority")(thread, ctypes.c_int(_BELOW_NORMAL))


def open_file(path: AnyPath, flags: int, mode: int = 0o666) -> int:  # noqa: ARG001
    """A descriptor that child processes do not get, of a file that others may rename or remove."""
    access = _GENERIC_READ if not flags & os.O_WRONLY else 0
    access |= _GENERIC_WRITE if flags & (os.O_WRONLY | os.O_RDWR) else 0
    how = _OPEN_EXISTING
    if flags & os.O_CREAT:
        how = _CREATE_NEW if flags & os.O_EXCL else _OPEN_ALWAYS
    handle = _kernel("CreateFileW", ctypes.c_void_p)(
        ctypes.c_wchar_p(os.fspath(path)),
        ctypes.c_uint32(access),
        ctypes.c_uint32(_SHARE_ALL),
        None,
        ctypes.c_uint32(how),
        ctypes.c_uint32(_NORMAL),
        None,
    )
    if handle == _INVALID:
        error = ctypes.WinError(ctypes.get_last_error())
        error.filename = os.fspath(path)
        raise error
    return msvcrt.open_osfhandle(handle, flags | os.O_BINARY | os.O_NOINHERIT)


def open_direct(_path: Path) -> int | None:
    """None: such reads need sectors of the disk, which differ."""
    return None


def read_at(descriptor: int, buffer: memoryview, offset: int) -> int:
    """Read into a buffer; returns how many bytes there were, at least one before the end."""
    with _READING, io.FileIO(descriptor, closefd=False) as file:
        file.seek(offset)
        return file.readinto(buffer) or 0


def copy_range(_source: int, _target: int, _offset: int, _size: int) -> int | None:
    """None: there is no call for it."""
    return None


def lock_file(descriptor: int, *, wait: bool) -> bool:
    """Lock a file until it is closed; False if another process has it and this one does not wait.

    Raises `OSError` if the file system has no locks.
    """
    handle = ctypes.c_void_p(msvcrt.get_osfhandle(descriptor))
    while True:
        where = _Overlapped(offset=_LOCKED_BYTE & 0xFFFFFFFF, offset_high=_LOCKED_BYTE >> 32)
        how = ctypes.c_uint32(_EXCLUSIVE | _FAIL_IMMEDIATELY)
        none, one = ctypes.c_uint32(0), ctypes.c_uint32(1)
        if _kernel("LockFileEx")(handle, how, none, one, none, ctypes.byref(where)):
            return True
        if (code := ctypes.get_last_error()) != _LOCK_VIOLATION:
            raise ctypes.WinError(code)
        if not wait:
            return False
        time.sleep(_POLL_SECONDS)


def sync_file(path: Path) -> None:
    """Sync a complete file to disk; Windows does so only for those who may write it."""
    descriptor = open_file(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Do nothing: NTFS writes down a rename before it returns, and no folder can be opened."""


def set_permissions(descriptor: int, mode: int) -> None:
    """Do nothing: a new file has the permissions of its folder."""


def link_file(target: Path, link: Path) -> None:
    """Make a symbolic link, or a hard one for users who may not make the former."""
    try:
        link.symlink_to(target)
    except OSError:
        link.hardlink_to(target)


def caches_under(home: Path) -> Path:
    """The folder for caches of a user."""
    return home / "AppData" / "Local"


def allow_open_files(wanted: int) -> int:
    """How many files this process may open: Windows has no limit."""
    return wanted


def new_group() -> dict[str, Any]:
    """Arguments of `Popen` for a process that Ctrl-C does not reach, and `end_group` ends."""
    return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}


def end_group(process: int, *, force: bool) -> None:
    """Ask a process of `new_group` and its children to end, or kill them."""
    if force:
        command = ["taskkill", "/F", "/T", "/PID", str(process)]
        subprocess.run(command, capture_output=True, check=False)  # it may have ended
    else:
        with suppress(OSError):
            os.kill(process, signal.CTRL_BREAK_EVENT)


def claim_address(listening: socket.socket) -> None:
    """Keep other programs from taking over the address, which they may on Windows."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
