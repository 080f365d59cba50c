"""How much memory the system can still give, and what to say when it is too little."""

import os
from pathlib import Path

from ingot.errors import MemoryShortageError

_MEMINFO = Path("/proc/meminfo")


def available() -> int:
    """Bytes the system can give without swapping: free ones and caches that it can drop."""
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def require(needed: int, purpose: str, remedy: str) -> None:
    """Raise an error that says what so many bytes are for and what to do, if they are not there."""
    room = available()
    if needed > room:
        raise MemoryShortageError(
            f"{purpose} takes {needed / 2**20:.0f} MiB of memory, and {room / 2**20:.0f} MiB "
            f"are available: {remedy}"
        )
