"""How fast a file comes from its disk, past the page cache.

Dropping the file from the page cache would slow down whoever uses it, so reads are direct
(`open_direct`). A file system that has no direct reads, or a system without them, gives None.
"""

import mmap
import os
import time
from pathlib import Path

from ingot.machine import open_direct, read_at

_PIECE = 4 << 20  # bytes
_SECONDS = 0.3


def disk_speed(path: Path) -> float | None:
    """Bytes per second."""
    descriptor = open_direct(path) if path.is_file() else None
    if descriptor is None:
        return None
    try:
        with mmap.mmap(-1, _PIECE) as memory, memoryview(memory) as piece:  # begins at a page
            return _measured(descriptor, piece, path.stat().st_size // _PIECE)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _measured(descriptor: int, piece: memoryview, pieces: int) -> float | None:
    began, done = time.perf_counter(), 0
    while done < pieces and time.perf_counter() - began < _SECONDS:
        read_at(descriptor, piece, done * _PIECE)
        done += 1
    return done * _PIECE / (time.perf_counter() - began) if done else None
