"""Answers the requests of a batch, a few at a time: `answer_all`, and `BatchRun` in a server."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from starlette.types import ASGIApp

from ingot.server.batches.requests import Answer, BatchRequest, ask_app
from ingot.server.state import Server

_BUSY = 429  # the queue is full
BUSY_SECONDS = 1  # until it is tried again
_AT_ONCE = 8  # requests of a batch, so that others find a slot

Ask = Callable[[BatchRequest], Awaitable[Answer | None]]  # None: it is not answered now
Keep = Callable[[int, Answer], None]


async def answer_all(
    ask: Ask, requests: Iterable[tuple[int, BatchRequest]], keep: Keep, at_once: int
) -> None:
    """Ask all requests, `at_once` at a time, and keep each answer under the request's number.

    A request is taken from `requests` only when one before it is answered. A full queue is tried
    again. What `ask` or `keep` raises ends everything.
    """
    waiting = iter(requests)

    async def work() -> None:
        for number, request in waiting:
            while (answer := await ask(request)) is not None and answer.status == _BUSY:
                await asyncio.sleep(BUSY_SECONDS)
            if answer is None:
                return
            keep(number, answer)

    workers = [asyncio.create_task(work()) for _ in range(at_once)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


@dataclass(slots=True)
class BatchRun:
    """The requests of a batch, and the answers so far."""

    requests: Sequence[BatchRequest]
    answers: dict[int, Answer] = field(default_factory=dict)  # by the number of the request
    _task: "asyncio.Task[None] | None" = None

    def start(self, app: ASGIApp, server: Server, keep: Keep, ended: Callable[[], None]) -> None:
        """Begin, or go on; `keep` gets each answer.

        `ended` is called when all requests are answered or cancelled. A server that stops leaves
        the rest to the next one.
        """
        self._task = asyncio.create_task(self._run(app, server, keep, ended))

    def cancel(self) -> None:
        """Answer no more requests."""
        if self._task is not None:
            self._task.cancel()

    def give_up(self) -> None:
        """Take the rest of the requests as cancelled."""
        for number in range(len(self.requests)):
            self.answers.setdefault(number, Answer(None))

    async def _run(
        self, app: ASGIApp, server: Server, keep: Keep, ended: Callable[[], None]
    ) -> None:
        left = [each for each in enumerate(self.requests) if each[0] not in self.answers]
        key = server.options.api_keys[0] if server.options.api_keys else ""

        async def ask(request: BatchRequest) -> Answer | None:
            answer = await ask_app(app, request, key)
            # A server that stops did not answer, but refused or cancelled.
            return None if server.draining and not answer.is_success else answer

        def take(number: int, answer: Answer) -> None:
            self.answers[number] = answer
            keep(number, answer)

        try:
            with suppress(asyncio.CancelledError):
                await answer_all(ask, left, take, _AT_ONCE)
        finally:
            if len(self.answers) == len(self.requests) or not server.draining:
                self.give_up()
                ended()
