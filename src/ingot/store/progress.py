"""How a download tells its caller what it does."""

from typing import Protocol


class Progress(Protocol):
    """Receives the progress of a pull: the stage, and `done` of `total` bytes of it."""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Called often, from the thread that pulls; `total` is 0 for a stage without a size."""


def silent(stage: str, done: int, total: int) -> None:
    """Ignore the progress."""
