"""A plan: which files make a model, where they come from, and where they go.

The hub, ollama's registry and web servers make plans; `fetch` carries one out, and
`ingot pull --dry-run` shows it. It does not know who made it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ingot.store.download import Source, download, is_intact, part_of, require_space, storing
from ingot.store.progress import Progress
from ingot.store.quantizations import memory_needed


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file of a model."""

    source: Source
    target: Path
    weights: bool = True  # it is loaded to run the model

    @property
    def is_here(self) -> bool:
        """Whether a file of the right size is in place."""
        size = _size(self.target)
        return size is not None and self.source.size in (None, size)

    @property
    def missing(self) -> int:
        """Bytes that a download brings."""
        if self.is_here:
            return 0
        return max((self.source.size or 0) - (_size(part_of(self.target)) or 0), 0)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pull does."""

    name: str
    files: tuple[PlannedFile, ...]
    finish: Callable[[], Path]  # makes the model usable by its name; its first file
    choice: str | None = None  # a sentence about a choice that the user left open

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.source.size or 0 for file in self.files)

    @property
    def missing(self) -> int:
        """Bytes to be downloaded."""
        return sum(file.missing for file in self.files)

    @property
    def memory(self) -> int:
        """About how many bytes of memory the model takes."""
        return memory_needed(sum(file.source.size or 0 for file in self.files if file.weights))


def plan_in_place(name: str, weights: Sequence[Path], others: Sequence[Path], said: str) -> Plan:
    """A plan that downloads nothing, because all files are on this machine."""

    def planned(path: Path, *, loaded: bool) -> PlannedFile:
        source = Source(path.absolute().as_uri(), path.name, _size(path))
        return PlannedFile(source, path, weights=loaded)

    files = [planned(path, loaded=True) for path in weights]
    files += [planned(path, loaded=False) for path in others]
    return Plan(name, tuple(files), lambda: weights[0], said)


def fetch(plan: Plan, report: Progress) -> Path:
    """Download what is missing, verify what is there, and return the model's first file."""
    if plan.choice:
        report(plan.choice, 0, 0)
    require_space(plan.files[0].target.parent, plan.missing, plan.name)
    for file in plan.files:
        source, target = file.source, file.target
        with storing(target):
            if not (file.is_here and _is_right(file, report)):
                target.unlink(missing_ok=True)
        download(source, target, report)
    with storing(plan.files[0].target):
        return plan.finish()


def _is_right(file: PlannedFile, report: Progress) -> bool:
    """Whether a file in place has the right checksum, if that is known."""
    checksum, size = file.source.checksum, _size(file.target)
    if checksum is None or size is None:
        return size is not None
    return is_intact(file.target, size, checksum, report, file.source.label)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
