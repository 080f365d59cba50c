"""The standard library as macOS and Windows have it, made of what Linux has.

A module that a system lacks is None. `WINDOWS_CORES` and the like are what the simulated machines
answer: whoever sees these numbers knows that the branch of that system ran.
"""

import ctypes
import fcntl
import mmap
import os
import pathlib
import platform
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType, SimpleNamespace
from typing import Any

WINDOWS_CORES, MACOS_CORES = 3, 5
# Two of its CPUs are of one core, if there are as many.
WINDOWS_THREADS = 2 if (os.cpu_count() or 1) > 1 else 3
WINDOWS_MEMORY, MACOS_PAGES = 48 << 30, 7 << 20
WINDOWS_CPU, MACOS_CPU = "Snapdragon X Elite", "Apple M9"
ADDED = {"msvcrt", "winreg"}  # modules that Linux lacks
PRIORITIES: list[int] = []  # what threads have asked for

_NOT_ON_WINDOWS = {
    "os": "sched_getaffinity fork killpg getpgid setsid fchmod preadv pread sysconf mkfifo nice "
    "getuid geteuid uname posix_fadvise setpriority PRIO_PROCESS O_CLOEXEC O_DIRECT O_NONBLOCK "
    "O_NOFOLLOW O_DIRECTORY waitstatus",
    "signal": "SIGKILL SIGPROF SIGALRM SIGXCPU SIGHUP SIGUSR1 SIGBUS setitimer ITIMER_PROF",
    "socket": "SO_REUSEADDR SO_REUSEPORT AF_UNIX",
}
_LINUX_PAGES = "MADV_HUGEPAGE MADV_NOHUGEPAGE"


class Changed(ModuleType):
    """A module without some names, and with others."""

    def __init__(self, module: ModuleType, without: str = "", **more: Any) -> None:
        super().__init__(module.__name__)
        self._module, self._without = module, frozenset(without.split())
        vars(self).update(more)

    def __getattr__(self, name: str) -> Any:
        if name in self._without:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(self._module, name)


class DrivePath(pathlib.Path, pathlib.PureWindowsPath):
    """A path as Windows spells it; the files of its drive C: are those of `DRIVE_C`.

    A path without a drive is taken for one of this machine.
    """

    def __new__(cls, *parts: Any) -> "DrivePath":
        if hasattr(cls, "_from_parts"):  # Python 3.11
            return cls._from_parts(parts)
        return object.__new__(cls)

    def __fspath__(self) -> str:
        place = self.as_posix()
        return os.environ["DRIVE_C"] + place[2:] if place[:3].lower() == "c:/" else place


class _Function:
    """A function of a library; `restype` may be set."""

    restype: Any = None

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)


class _Kernel32:
    """The functions of Windows that Ingot calls."""

    last_error = 0
    _INVALID = ctypes.c_void_p(-1).value

    def __getattr__(self, name: str) -> _Function:
        return _Function(object.__getattribute__(self, f"_{name}"))

    def _GetCurrentProcess(self) -> int | None:
        return self._INVALID

    def _GetCurrentThread(self) -> int:
        return ctypes.c_void_p(-2).value or 0

    def _SetThreadPriority(self, thread: Any, priority: Any) -> int:
        assert thread.value == self._GetCurrentThread()
        PRIORITIES.append(priority.value)
        return 1

    def _GetProcessAffinityMask(self, _process: Any, ours: Any, all_cores: Any) -> int:
        ours._obj.value = all_cores._obj.value = (1 << WINDOWS_CORES) - 1
        return 1

    def _GlobalMemoryStatusEx(self, status: Any) -> int:
        assert status._obj.length == 64, "Windows fills in nothing for another length"
        status._obj.total = status._obj.available = WINDOWS_MEMORY
        return 1

    def _GetLogicalProcessorInformation(self, room: Any, size: Any) -> int:
        """Two threads of one core after the other, each core with caches; a third level for all."""
        threads, found = min(os.cpu_count() or 1, 64), bytearray()  # it tells no more

        def add(first: int, count: int, relation: int, about: bytes) -> None:
            found.extend(struct.pack("<Qi4x", (1 << count) - 1 << first, relation) + about)

        for first in range(0, threads, 2):
            count = min(2, threads - first)
            add(first, count, 0, struct.pack("<B15x", 1))  # a core with SMT
            for level, kibibytes, kind in ((2, 1024, 0), (1, 32, 1), (1, 48, 2)):
                add(first, count, 2, struct.pack("<BBHIi4x", level, 8, 64, kibibytes << 10, kind))
        add(0, threads, 1, bytes(16))  # a NUMA node
        add(0, threads, 2, struct.pack("<BBHIi4x", 3, 16, 64, 12 << 20, 0))
        wanted, size._obj.value = size._obj.value, len(found)
        if room is None or wanted < len(found):
            type(self).last_error = 122
            return 0
        ctypes.memmove(room, bytes(found), len(found))
        return 1

    def _SetProcessWorkingSetSize(self, _process: Any, least: Any, most: Any) -> int:
        return int(least.value < most.value)

    def _VirtualLock(self, address: Any, size: Any) -> int:
        return int(bool(address.value and size.value))

    def _CreateFileW(
        self, path: Any, access: Any, share: Any, _s: Any, how: Any, _a: Any, _t: Any
    ) -> int | None:
        assert share.value == 7, "others could neither rename nor remove it"
        reads, writes = access.value >> 31 & 1, access.value >> 30 & 1
        flags = os.O_RDWR if reads and writes else os.O_WRONLY if writes else os.O_RDONLY
        flags |= {1: os.O_CREAT | os.O_EXCL, 3: 0, 4: os.O_CREAT}[how.value]
        try:
            return os.open(path.value, flags, 0o666)
        except OSError as error:
            type(self).last_error = error.errno or 0
            return self._INVALID

    def _LockFileEx(
        self, handle: Any, how: Any, _zero: Any, low: Any, high: Any, where: Any
    ) -> int:
        assert (low.value, high.value) == (1, 0)
        assert where._obj.offset_high == 1 << 30, "a byte that files have would block readers"
        assert how.value == 3
        try:
            fcntl.flock(handle.value, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            type(self).last_error = 33
            return 0
        return 1


def _windows_run(command: list[str], **_: Any) -> None:
    assert command[:4] == ["taskkill", "/F", "/T", "/PID"]
    with suppress(ProcessLookupError):
        os.kill(int(command[4]), signal.SIGKILL)


@contextmanager
def _open_key(_root: object, path: str) -> Iterator[dict[str, str]]:
    assert path.split("\\") == ["HARDWARE", "DESCRIPTION", "System", "CentralProcessor", "0"]
    yield {"ProcessorNameString": f"{WINDOWS_CPU}  "}


def _windows_error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def windows() -> dict[str, ModuleType | None]:
    """The modules of Windows."""
    kernel32 = _Kernel32()
    msvcrt = ModuleType("msvcrt")
    vars(msvcrt).update(
        open_osfhandle=lambda handle, _flags: handle, get_osfhandle=lambda descriptor: descriptor
    )
    winreg = ModuleType("winreg")
    vars(winreg).update(
        HKEY_LOCAL_MACHINE=object(),
        OpenKey=_open_key,
        QueryValueEx=lambda key, name: (key[name], 1),
    )
    paths: dict[str, ModuleType | None] = {"pathlib": Changed(pathlib, Path=DrivePath)}
    return (paths if "DRIVE_C" in os.environ else {}) | {
        "fcntl": None,
        "resource": None,
        "termios": None,
        "pwd": None,
        "uvloop": None,
        "msvcrt": msvcrt,
        "winreg": winreg,
        "sys": Changed(sys, platform="win32"),
        "os": Changed(os, _NOT_ON_WINDOWS["os"], name="nt", O_BINARY=0, O_NOINHERIT=os.O_CLOEXEC),
        "signal": Changed(
            signal, _NOT_ON_WINDOWS["signal"], SIGBREAK=signal.SIGHUP, CTRL_BREAK_EVENT=1
        ),
        "socket": Changed(
            socket, _NOT_ON_WINDOWS["socket"], SO_EXCLUSIVEADDRUSE=socket.SO_REUSEADDR
        ),
        "subprocess": Changed(subprocess, CREATE_NEW_PROCESS_GROUP=0, run=_windows_run),
        "mmap": Changed(mmap, _LINUX_PAGES),
        "platform": Changed(platform, system=lambda: "Windows"),
        "ctypes": Changed(
            ctypes,
            "CDLL",
            WinDLL=lambda _name, **_: kernel32,
            WinError=_windows_error,
            get_last_error=lambda: kernel32.last_error,
        ),
    }


def _sysctlbyname(name: bytes, value: Any, size: Any, _new: None, _new_size: int) -> int:
    facts = {
        b"hw.perflevel0.logicalcpu": MACOS_CORES,
        b"vm.page_free_count": MACOS_PAGES,
        b"vm.page_purgeable_count": 0,
        b"vm.page_pageable_external_count": 0,
        b"hw.physicalcpu": 9,
        b"hw.logicalcpu": 9,
        b"hw.perflevel0.cpusperl2": MACOS_CORES,
        b"hw.perflevel0.l1dcachesize": 128 << 10,
        b"hw.l1dcachesize": 64 << 10,  # of a slow core
        b"hw.perflevel0.l2cachesize": 16 << 20,
        b"hw.l2cachesize": 4 << 20,
        b"machdep.cpu.brand_string": MACOS_CPU.encode(),
    }
    if name not in facts:  # Apple's CPUs tell no third level
        return -1
    fact = facts[name]
    assert size._obj.value == 8 or isinstance(fact, bytes)
    value._obj.value = fact
    return 0


def _set_quality_of_service(quality: Any, relative: Any) -> int:
    assert relative.value == 0
    PRIORITIES.append(quality.value)
    return 0


def macos() -> dict[str, ModuleType | None]:
    """The modules of macOS."""

    def library(_name: None, use_errno: bool) -> Any:
        real = ctypes.CDLL(None, use_errno=use_errno)
        return SimpleNamespace(
            sysctlbyname=_sysctlbyname,
            mlock=real.mlock,
            pthread_set_qos_class_self_np=_set_quality_of_service,
        )

    def sysconf(name: str) -> int:
        if name == "SC_AVPHYS_PAGES":
            raise ValueError("unrecognized configuration name")
        return os.sysconf(name)

    return {
        "sys": Changed(sys, platform="darwin"),
        "os": Changed(os, "sched_getaffinity posix_fadvise setpriority O_DIRECT", sysconf=sysconf),
        "mmap": Changed(mmap, _LINUX_PAGES),
        "platform": Changed(platform, system=lambda: "Darwin"),
        "ctypes": Changed(ctypes, CDLL=library),
    }


SYSTEMS = {"windows": windows, "macos": macos}
