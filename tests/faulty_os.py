"""FaultyOs: takes the place of `os` for `ingot.files`, and one of its calls goes wrong.

Calls that change something on the disk are counted, all together. The n-th one fails, writes
fewer bytes than it was given, or is the last of its process. Nothing waits for the disk: that
would take most of the time, and is seen only after a power failure.
"""

import errno
import os
import signal
from collections.abc import Callable
from enum import Enum
from typing import Any

PLACES = ("ingot.files.os", "ingot.machine.posix.os")  # of the name `os` to be replaced
_COUNTED = frozenset(
    {"open", "write", "copy_file_range", "fsync", "fchmod", "replace", "unlink", "close"}
)


class Fault(Enum):
    """What goes wrong."""

    NO_SPACE = errno.ENOSPC
    BROKEN = errno.EIO
    SHORT = "a write of one byte"
    KILL = "SIGKILL before the call"


class FaultyOs:
    """`os`, of which one call goes wrong."""

    def __init__(self, fault: Fault, at: int) -> None:
        """`at` counts from 1; with 0 nothing goes wrong."""
        self.calls = 0
        self._fault = fault
        self._at = at

    @property
    def happened(self) -> bool:
        """Whether there were so many calls."""
        return self.calls >= self._at

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name) if name != "fsync" else os.fstat
        return self._counting(name, real) if name in _COUNTED else real

    def _counting(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.calls += 1
            if self.calls != self._at:
                return real(*arguments)
            if self._fault is Fault.KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            if self._fault is Fault.SHORT:
                if name == "write":
                    arguments = (arguments[0], arguments[1][:1])
                if name == "copy_file_range":
                    arguments = (*arguments[:2], 1, *arguments[3:])
                return real(*arguments)
            if name == "close":  # which closes, whatever it says
                real(*arguments)
            raise OSError(self._fault.value, os.strerror(self._fault.value))

        return call
