"""What only Linux has: affinity of a process, and /proc. Other systems with POSIX use it, too."""

import os
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")


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


def caches_under(home: Path) -> Path:
    """The folder for caches of a user."""
    return home / ".cache"
