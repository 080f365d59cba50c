"""One-line progress bars on stderr, for terminals only; they disappear when the work is done.

It consists of plain characters and carriage returns, without escape sequences. A dumb terminal may
not support carriage returns, so it gets no bar.
"""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from ingot.config import config

_WIDTH = 30
_PAUSE = 0.1  # seconds between two drawings of a download
_SETTLE = 1.0  # seconds until a rate is worth showing


class Bar:
    """A bar for a `with` block; call it with the progress to draw it."""

    def __init__(self, label: str, unit: str, *, shown: bool = True) -> None:
        self._label = label
        self._unit = unit
        self.shows = shown and sys.stderr.isatty() and not config().dumb_terminal
        self._drawn = 0  # characters

    def __call__(self, done: int, total: int) -> None:
        """Show `done` of `total`."""
        self.draw(done, total)

    def draw(self, done: int, total: int, note: str = "") -> None:
        """Show `done` of `total`, and a note after it."""
        if self.shows:
            filled = "#" * (_WIDTH * done // max(total, 1))
            line = f"{self._label} [{filled:<{_WIDTH}}] {done} of {total} {self._unit}{note}"
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


class StageBar:
    """The progress of work in stages that are counted; for a `with` block."""

    def __init__(self) -> None:
        self._stage = ""
        self._bar = Bar("", "")

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show `done` of `total` of a stage."""
        self._begin(stage, "steps")
        self._bar(done, total)

    def _begin(self, stage: str, unit: str) -> bool:
        """Whether this is a new stage; then it gets a bar of its own."""
        if stage == self._stage:
            return False
        self._bar.clear()
        self._stage, self._bar = stage, Bar(stage, unit)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.clear()


class DownloadBar(StageBar):
    """The progress of a download, stage by stage, with rate and time left; for a `with` block.

    A stage without a size is a sentence for the user.
    """

    def __init__(self, announce: Callable[[str, int], None] | None = None) -> None:
        """`announce(stage, total)` is called for each stage that no bar shows.

        By default, sentences go to stderr if it is a terminal.
        """
        super().__init__()
        self._announce = announce or _say_on_terminal
        self._began = (0.0, 0)  # time and bytes
        self._drawn = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show `done` of `total` bytes of a stage."""
        now = time.monotonic()
        if self._begin(stage, "MiB"):
            self._began, self._drawn = (now, done), 0.0
            if not total or not self._bar.shows:
                self._announce(stage, total)
        if total and (now - self._drawn >= _PAUSE or done == total):
            self._drawn = now
            self._bar.draw(done >> 20, total >> 20, self._pace(now, done, total))

    def _pace(self, now: float, done: int, total: int) -> str:
        """The rate of this stage, and the time left."""
        began, before = self._began
        if now - began < _SETTLE or done <= before:
            return ""
        rate = (done - before) / (now - began)
        minutes, seconds = divmod(round((total - done) / rate), 60)
        return f", {rate / 2**20:.1f} MiB/s, {minutes}:{seconds:02} left"


def _say_on_terminal(stage: str, total: int) -> None:
    if not total and sys.stderr.isatty():
        print(stage, file=sys.stderr, flush=True)
