"""Offline batches: a file of requests, answered into a folder.

    answers.jsonl   while it runs: every answer as it comes, so that a later run goes on from there
    batch.lock      while it runs: so that no other process does the same
    output.jsonl    at the end: the answers of all requests that succeeded, in the order of the file
    errors.jsonl    at the end: what was wrong with the others; missing if there are none
    batch.json      what is answered with what, and at the end the counts

The last three are complete or missing. It does not know who answers.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from ingot.errors import ConfigError
from ingot.files import Draft, remove_file, write_file
from ingot.machine import lock_file
from ingot.server.app import application
from ingot.server.batches.journal import Journal
from ingot.server.batches.lines import LineError, answer_line, error_line, read_line
from ingot.server.batches.requests import Answer, BatchRequest, ask_app
from ingot.server.batches.row_files import RowFile
from ingot.server.batches.run import Ask, answer_all
from ingot.server.options import ServerOptions
from ingot.server.state import Server

_ANSWERS, _LOCK = "answers.jsonl", "batch.lock"
_OUTPUT, _ERRORS, _STATE = "output.jsonl", "errors.jsonl", "batch.json"
# What asks a server, and how many requests keep it busy.
Asking = AbstractAsyncContextManager[tuple[Ask, int]]
_SLOTS = 32  # of a model that is not open yet


@dataclass(frozen=True, slots=True)
class Counts:
    """The rows of a batch by outcome."""

    rows: int
    succeeded: int
    failed: int


class OfflineBatch:
    """A file of requests and the folder for its answers."""

    def __init__(self, source: RowFile, folder: Path, models: list[str]) -> None:
        """`models` are those that answer; another run must have the same."""
        self._source = source
        self._folder = folder
        self._identity = {"sha256": source.digest, "models": models}
        self._journal = Journal(folder / _ANSWERS)

    async def run(self, ask: Ask, at_once: int, progress: Callable[[int, int], None]) -> Counts:
        """Answer the rows that have no answer yet, and write the files, after `begin`.

        `progress(done, total)` is called for every answer.
        """
        lock = self._folder / _LOCK
        with lock.open("ab") as held:
            if not lock_file(held.fileno(), wait=False):
                raise ConfigError(f"another process is answering into {self._folder}")
            if (ended := self.begin()) is not None:
                return ended
            self._journal.path.touch()
            await self._answer(ask, at_once, progress)
            counts = self._finish()
        remove_file(self._journal.path)
        remove_file(lock)
        return counts

    def begin(self) -> Counts | None:
        """Say in the folder what is answered; the counts if a run before has done it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / _STATE
        if not path.exists():
            for name in (_ANSWERS, _OUTPUT, _ERRORS):
                if (self._folder / name).exists():
                    raise ConfigError(f"{self._folder} has a file {name} already; choose another")
            write_file(path, [json.dumps(self._identity).encode()])
            return None
        try:
            state = json.loads(path.read_bytes())
            counts = state.pop("counts", None)
            ended = None if counts is None else Counts(**counts)
        except (ValueError, AttributeError, TypeError) as error:
            raise ConfigError(f"{path} is not of a batch: {error}") from None
        if state != self._identity:
            raise ConfigError(
                f"{self._folder} has answers to another file, or of other models; choose another "
                "folder, or remove it"
            )
        return ended

    async def _answer(self, ask: Ask, at_once: int, progress: Callable[[int, int], None]) -> None:
        done = set(self._journal.offsets())
        answered = len(done)

        def left() -> Iterator[tuple[int, BatchRequest]]:
            for number, request in self._requests():
                if not isinstance(request, LineError) and number not in done:
                    yield number, request

        def keep(number: int, answer: Answer) -> None:
            nonlocal answered
            self._journal.append(number, answer)
            answered += 1
            progress(answered, self._source.count)

        progress(answered, self._source.count)
        await answer_all(ask, left(), keep, at_once)

    def _requests(self) -> Iterator[tuple[int, BatchRequest | LineError]]:
        """The rows with their numbers."""
        seen: set[str] = set()
        for number, text in self._source.rows():
            try:
                yield number, read_line(text, seen)
            except LineError as error:
                yield number, error

    def _finish(self) -> Counts:
        """Write the answers in the order of the rows."""
        offsets = self._journal.offsets()
        output, errors = self._folder / _OUTPUT, self._folder / _ERRORS
        rows = failed = 0
        with self._journal.path.open("rb") as kept, Draft(output) as good, Draft(errors) as bad:
            for number, request in self._requests():
                line, is_good = self._result(kept, number, request, offsets)
                (good if is_good else bad).write(line)
                rows += 1
                failed += not is_good
            if failed:
                bad.publish()
            good.publish()
        counts = Counts(rows, rows - failed, failed)
        state = {**self._identity, "counts": asdict(counts)}
        write_file(self._folder / _STATE, [json.dumps(state).encode()])
        return counts

    def _result(
        self,
        kept: BinaryIO,
        number: int,
        request: BatchRequest | LineError,
        offsets: dict[int, int],
    ) -> tuple[bytes, bool]:
        """The line of a row, and whether it succeeded."""
        if isinstance(request, LineError):
            line = error_line(request.custom_id, request.code, request.message, line=number)
            return _written(line), False
        answer = self._journal.read(kept, offsets[number])
        return _written(answer_line(request.custom_id, answer)), answer.is_success


def _written(line: dict[str, object]) -> bytes:
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


@asynccontextmanager
async def asking(options: ServerOptions) -> AsyncIterator[tuple[Ask, int]]:
    """What asks a server in this process, and how many requests keep it busy.

    It raises an error if a model cannot go on, so that requests are not taken as failed.
    """
    server = Server(options)
    app = application(server)
    async with app.router.lifespan_context(app):
        send = partial(ask_app, app)

        async def ask(request: BatchRequest) -> Answer:
            answer = await send(request)
            if answer.status is not None and answer.status >= 500:
                server.catalog.check()
            return answer

        opened = [entry.llm for entry in server.catalog.entries.values() if entry.llm is not None]
        slots = max((llm.engine.max_running for llm in opened), default=_SLOTS)
        yield ask, 2 * slots
