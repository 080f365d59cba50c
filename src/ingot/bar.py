"""A progress bar of one line on stderr: on a terminal only, gone when the work is done.

Plain characters: nothing has to be imported to draw it.
"""

import sys
from types import TracebackType
from typing import Self

_WIDTH = 30
_ERASE = "\r\033[K"


class Bar:
    """Draws between entering and leaving it, whenever it is told how far the work is."""

    def __init__(self, label: str, unit: str, *, shown: bool = True) -> None:
        self._label = label
        self._unit = unit
        self._shows = shown and sys.stderr.isatty()
        self._is_drawn = False

    def __call__(self, done: int, total: int) -> None:
        """Show `done` of `total`."""
        if self._shows:
            filled = "#" * (_WIDTH * done // max(total, 1))
            line = f"{self._label} [{filled:<{_WIDTH}}] {done} of {total} {self._unit}"
            self._write(_ERASE + line)
            self._is_drawn = True

    def clear(self) -> None:
        """Take the line away, until the next call; any other line stays."""
        if self._is_drawn:
            self._write(_ERASE)
            self._is_drawn = False

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
