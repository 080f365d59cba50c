"""Which checkpoints in the hub's cache are whole, noted when the hub had been asked.

Other tools download the files that they need: weights without what says how to pool them, or
without the chat template. The folder of a commit and the names of its files come in and are kept in
Ingot's cache. This module does not ask the hub.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ingot.config import config


def note(repo: str, folder: Path, names: Iterable[str]) -> None:
    """Remember all files of a checkpoint; without a place to write, the hub is asked again."""
    path = _note_of(repo, folder)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(names), encoding="utf-8")


def is_noted(repo: str, folder: Path) -> bool:
    """Whether the files of a checkpoint are known, and all of them are here."""
    try:
        names = _note_of(repo, folder).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return False
    return bool(names) and all((folder / name).is_file() for name in names)


def _note_of(repo: str, folder: Path) -> Path:
    return config().cache / "checkpoints" / f"{repo.replace('/', '--')}@{folder.name}"
