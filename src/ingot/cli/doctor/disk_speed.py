"""How fast a file comes from its disk, past the page cache.

Dropping the file from the page cache would slow down whoever uses it, so reads are direct
(O_DIRECT). A file system that has no direct reads, or a system without them, gives None.
"""

import mmap
import os
import time
from pathlib import Path

_PIECE = 4 << 20  # bytes
_SECONDS = 0.3


def disk_speed(path: Path) -> float | None:
    """Bytes per second."""
    if not hasattr(os, "O_DIRECT") or not path.is_file():
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return None
    try:
        with mmap.mmap(-1, _PIECE) as piece:
            return _measured(descriptor, piece, path.stat().st_size // _PIECE)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _measured(descriptor: int, piece: mmap.mmap, pieces: int) -> float | None:
    began, done = time.perf_counter(), 0
    while done < pieces and time.perf_counter() - began < _SECONDS:
        os.preadv(descriptor, [piece], done * _PIECE)
        done += 1
    return done * _PIECE / (time.perf_counter() - began) if done else None
