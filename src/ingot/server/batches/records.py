"""BatchRecords: the batches of one API on disk, so that a restarted server continues them.

A batch is a file with its state, one with its requests and one to which answers are appended. All
are JSON, under the id of the batch. It does not know what the state of an API's batch contains.
Without a folder nothing is written.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ingot.errors import ConfigError
from ingot.files import remove_file, sweep, write_file
from ingot.server.batches.journal import Journal
from ingot.server.batches.requests import Answer, BatchRequest

_STATE, _REQUESTS, _ANSWERS = "state.json", "requests.jsonl", "answers.jsonl"


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch as it was when the server stopped."""

    state: dict[str, Any]
    requests: Sequence[BatchRequest]
    answers: dict[int, Answer]


class BatchRecords:
    """The batches in a folder; None: nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def create(
        self, batch_id: str, state: dict[str, Any], requests: Sequence[BatchRequest]
    ) -> None:
        """Keep a new batch."""
        if self._folder is None:
            return
        lines = (json.dumps(asdict(request)).encode() + b"\n" for request in requests)
        write_file(self._path(batch_id, _REQUESTS), lines, mode=0o600)
        self.update(batch_id, state)

    def update(self, batch_id: str, state: dict[str, Any]) -> None:
        """Keep the state of a batch."""
        if self._folder is not None:
            content = json.dumps(state).encode()
            write_file(self._path(batch_id, _STATE), [content], mode=0o600)

    def writer(self, batch_id: str) -> Callable[[int, Answer], None]:
        """What keeps each answer of a batch."""
        if self._folder is None:
            return lambda _number, _answer: None
        return Journal(self._path(batch_id, _ANSWERS)).append

    def remove(self, batch_id: str) -> None:
        """Forget a batch."""
        if self._folder is not None:
            for name in (_STATE, _REQUESTS, _ANSWERS):
                remove_file(self._path(batch_id, name))

    def load(self) -> Iterator[StoredBatch]:
        """All batches, the oldest first."""
        if self._folder is None:
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sweep(self._folder)
        found = [self._load(path) for path in self._folder.glob(f"*.{_STATE}")]
        yield from sorted(found, key=lambda batch: str(batch.state["created_at"]))

    def _load(self, path: Path) -> StoredBatch:
        batch_id = path.name.removesuffix(f".{_STATE}")
        try:
            return StoredBatch(
                json.loads(path.read_bytes()),
                [BatchRequest(**each) for each in _lines(self._path(batch_id, _REQUESTS))],
                dict(Journal(self._path(batch_id, _ANSWERS)).answers()),
            )
        except (ValueError, TypeError, OSError) as error:
            raise ConfigError(f"{path} is not a batch of this server: {error}") from None

    def _path(self, batch_id: str, name: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{batch_id}.{name}"


def _lines(path: Path) -> Iterator[Any]:
    """The values of a file of JSON lines."""
    for line in path.read_bytes().splitlines():
        yield json.loads(line)
