"""What only macOS has: facts by `sysctlbyname`, and fast and slow cores."""

import ctypes
import mmap
import os
from pathlib import Path

# Pages that are free, that programs offered to lose, and that files can be read into again.
_AVAILABLE = ("vm.page_free_count", "vm.page_purgeable_count", "vm.page_pageable_external_count")
CHOOSES_PAGES = False
_UTILITY = 0x11  # QOS_CLASS_UTILITY: work that nobody waits for


def usable_cores() -> int:
    """The fast cores: all threads of a model wait for the slowest one."""
    return _fact("hw.perflevel0.logicalcpu") or os.cpu_count() or 1


def default_threads() -> int:
    """One thread for each fast core: none of these CPUs runs two."""
    return usable_cores()


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
    size = ctypes.c_size_t(ctypes.sizeof(value))
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.sysctlbyname(name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0)
    return None if failed else value.value
