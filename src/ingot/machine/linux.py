"""What only Linux has: affinity of a process, /proc, and limits of containers.

Other systems with POSIX use it, too.
"""

import math
import mmap
import os
import threading
from contextlib import suppress
from pathlib import Path

from ingot.machine import control_groups
from ingot.machine.cpu_topology import physical_cores

_ROOT = Path("/")
_NICE = 10

CHOOSES_PAGES = hasattr(mmap, "MADV_HUGEPAGE")


def usable_cores() -> int:
    """The CPUs that this process may use; containers and `taskset` give it fewer than all."""
    return len(_allowed())


def default_threads() -> int:
    """One thread for each core that this process may use, within a container's quota.

    Two threads on one core share what it can multiply and read. If the system does not tell which
    CPUs share a core, each counts as one.
    """
    allowed = _allowed()
    cores = physical_cores(_ROOT)
    alone = allowed.difference(*cores)
    count = len(alone) + sum(1 for core in cores if core & allowed)
    quota = control_groups.cpu_quota(_ROOT)
    return count if quota is None else max(1, min(count, math.ceil(quota)))


def _allowed() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def available_memory() -> int:
    """Bytes that can be had without swapping: free ones and caches that the system can drop.

    A container's limit may leave less.
    """
    left = control_groups.memory_left(_ROOT)
    return _system_memory() if left is None else min(_system_memory(), left)


def _system_memory() -> int:
    try:
        lines = (_ROOT / "proc/meminfo").read_text().splitlines()
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
