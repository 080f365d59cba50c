"""What only Linux has: affinity of a process, and /proc. Other systems with POSIX use it, too."""

import mmap
import os
import threading
from contextlib import suppress
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_NICE = 10

CHOOSES_PAGES = hasattr(mmap, "MADV_HUGEPAGE")


def usable_cores() -> int:
    """The cores that this process may use; containers and `taskset` give it fewer than all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory() -> int:
    """Bytes the system can give without swapping: free ones and caches that it can drop."""
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def choose_pages(memory: mmap.mmap, *, huge: bool) -> None:
    """Ask for huge or for small pages."""
    if CHOOSES_PAGES:
        with suppress(OSError):  # of a kernel without huge pages
            memory.madvise(getattr(mmap, "MADV_HUGEPAGE" if huge else "MADV_NOHUGEPAGE"))


def lower_priority() -> None:
    """Let other threads go before this one."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


def open_direct(path: Path) -> int | None:
    """A descriptor that reads past the page cache; None if the file system has no such reads."""
    if not hasattr(os, "O_DIRECT"):
        return None
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:
        return None


def caches_under(home: Path) -> Path:
    """The folder for caches of a user."""
    return home / ".cache"
