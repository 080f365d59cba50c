"""The store's progress on stderr: a bar on a terminal, else one line per stage."""

from types import TracebackType
from typing import Self

from ingot.bar import Bar
from ingot.cli.text import notice, size


class DrawnProgress:
    """A `store.Progress`, in a `with` block; its bar is gone at the end."""

    def __init__(self) -> None:
        self._stage = ""
        self._bar = Bar("", "")

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show how far the stage is."""
        if stage != self._stage:
            self._bar.clear()
            self._stage, self._bar = stage, Bar(stage, "MiB")
            if not total:
                notice(stage)
            elif not self._bar.shows:
                notice(f"{stage} ({size(total)})")
        if total:
            self._bar(done >> 20, total >> 20)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.clear()
