"""A progress bar of one line on stderr: on a terminal only, gone when the work is done.

It is made of plain characters and carriage returns, without escape sequences. A dumb terminal,
which may not know carriage returns either, gets none.
"""

import sys
from types import TracebackType
from typing import Self

from ingot.config import config

_WIDTH = 30


class Bar:
    """Draws between entering and leaving it, whenever it is told how far the work is."""

    def __init__(self, label: str, unit: str, *, shown: bool = True) -> None:
        self._label = label
        self._unit = unit
        self.shows = shown and sys.stderr.isatty() and not config().dumb_terminal
        self._drawn = 0  # characters

    def __call__(self, done: int, total: int) -> None:
        """Show `done` of `total`."""
        if self.shows:
            filled = "#" * (_WIDTH * done // max(total, 1))
            line = f"{self._label} [{filled:<{_WIDTH}}] {done} of {total} {self._unit}"
            self._write(f"\r{line:<{self._drawn}}")
            self._drawn = len(line)

    def clear(self) -> None:
        """Take the line away, until the next call; any other line stays."""
        if self._drawn:
            self._write(f"\r{'':<{self._drawn}}\r")
            self._drawn = 0

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.clear()
