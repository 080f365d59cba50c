"""Facts about the machine that the operating system knows."""

import os
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")


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
