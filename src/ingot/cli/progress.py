"""The store's progress, drawn on stderr: a bar on a terminal, else one line per stage."""

from types import TracebackType
from typing import Self

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from ingot.cli.terminal import console
from ingot.cli.text import notice, size


class DrawnProgress:
    """A `store.Progress`; draws between entering and leaving it."""

    def __init__(self) -> None:
        self._console = console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task("", total=None)
        self._stage = ""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show how far the stage is."""
        if self._console.is_terminal:
            self._show(stage, done, total)
        elif stage != self._stage:
            notice(f"{stage} ({size(total)})" if total else stage)
        self._stage = stage

    def _show(self, stage: str, done: int, total: int) -> None:
        if stage != self._stage:
            self._bar.reset(self._task, description=stage)
        self._bar.update(self._task, completed=done, total=total or None)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._bar.stop()
