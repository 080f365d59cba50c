"""What only macOS has: facts by `sysctlbyname`, and fast and slow cores."""

import ctypes
import mmap
import os
from pathlib import Path

from ingot.machine.cpu import Cache, Cpu

# Pages that are free, that programs offered to lose, and that files can be read into again.
_AVAILABLE = ("vm.page_free_count", "vm.page_purgeable_count", "vm.page_pageable_external_count")
CHOOSES_PAGES = False
_UTILITY = 0x11  # QOS_CLASS_UTILITY: work that nobody waits for


def usable_cores() -> int:
    """The fast cores: all threads of a model wait for the slowest one."""
    return _fact("hw.perflevel0.logicalcpu") or os.cpu_count() or 1


def read_cpu(_root: Path) -> Cpu:
    """The CPU of this machine; of Apple's, the caches of a fast core."""
    cores, threads = _fact("hw.physicalcpu"), _fact("hw.logicalcpu") or 1
    of_core = threads // (cores or threads)  # two on Intel's
    sharing = (of_core, _fact("hw.perflevel0.cpusperl2") or of_core, threads)
    caches = []
    for level, (name, shared_by) in enumerate(zip(("l1d", "l2", "l3"), sharing, strict=True), 1):
        size = _fact(f"hw.perflevel0.{name}cachesize") or _fact(f"hw.{name}cachesize")
        if size:
            caches.append(Cache(level, size, shared_by))
    return Cpu(_text_fact("machdep.cpu.brand_string"), cores, tuple(caches))


def default_threads() -> int:
    """One for each fast core of Apple's, which run one thread each, or for each core of Intel's."""
    return _fact("hw.perflevel0.logicalcpu") or _fact("hw.physicalcpu") or usable_cores()


def available_memory() -> int:
    """Bytes the system can give without compressing or swapping what is in use."""
    return sum(_fact(name) or 0 for name in _AVAILABLE) * os.sysconf("SC_PAGE_SIZE")


def choose_pages(_memory: mmap.mmap, *, huge: bool) -> None:
    """Do nothing: there is no choice."""


def lower_priority() -> None:
    """Let other threads go before this one, which may get a slow core."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.pthread_set_qos_class_self_np(ctypes.c_uint32(_UTILITY), ctypes.c_int(0))


def open_direct(_path: Path) -> int | None:
    """None: pages that are in the page cache are read from there."""
    return None


def caches_under(home: Path) -> Path:
    """The folder for caches of a user."""
    return home / "Library" / "Caches"


def _fact(name: str) -> int | None:
    """The whole number that the kernel knows by this name; None if this kernel has none."""
    value = ctypes.c_uint64(0)  # facts of 32 bits fill its low half
    return value.value if _ask(name, value) else None


def _text_fact(name: str) -> str | None:
    """The text that the kernel knows by this name."""
    value = ctypes.create_string_buffer(256)
    return value.value.decode(errors="replace") or None if _ask(name, value) else None


def _ask(name: str, value: ctypes.c_uint64 | ctypes.Array[ctypes.c_char]) -> bool:
    size = ctypes.c_size_t(ctypes.sizeof(value))
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.sysctlbyname(name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0)
    return not failed
