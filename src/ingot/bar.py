"""A one-line progress bar on stderr, for terminals only; it disappears when the work is done.

It consists of plain characters and carriage returns, without escape sequences. A dumb terminal may
not support carriage returns, so it gets no bar.
"""

import sys
from types import TracebackType
from typing import Self

from ingot.config import config

_WIDTH = 30


class Bar:
    """A bar for a `with` block; call it with the progress to draw it."""

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
        """Erase the bar until the next call."""
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
