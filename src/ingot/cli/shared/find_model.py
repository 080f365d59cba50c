"""Which file a command works on: the model given with `-m`, or the default one.

The value of `-m` comes in, a path goes out. A model that has to be downloaded shows its progress
on stderr: a bar on a terminal, otherwise one line per stage.
"""

from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

import typer

from ingot import store
from ingot.bar import Bar
from ingot.cli.shared.output import notice, size

MODEL_HELP = (
    "A GGUF file, or the name of a model in the cache. Default: SmolLM2 (see `ingot pull`)."
)

ModelOption = Annotated[str | None, typer.Option("-m", "--model", metavar="MODEL", help=MODEL_HELP)]


class PullProgress:
    """A `store.Progress` for a `with` block; its bar disappears at the end."""

    def __init__(self) -> None:
        self._stage = ""
        self._bar = Bar("", "")

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show `done` of `total` bytes of a stage."""
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


def locate(name: str | None) -> Path:
    """The model's file; without a name, the default model's file, and a notice that says so."""
    if name is None:
        name = store.DEFAULT
        notice(f"no model given: using the default, {store.DEFAULT_MODEL.file}")
    if path := store.find(name):
        return path
    with PullProgress() as progress:
        return store.resolve(name, progress)
