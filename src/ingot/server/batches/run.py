"""BatchRun: sends the requests of a batch to the server's own endpoints, a few at a time.

Requests come in as paths and JSON; answers go out as status and JSON. It does not know the form
that an API gives to a batch.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message

from ingot.server.state import Server

_BUSY = 429  # the queue is full
_AT_ONCE = 8  # requests of a batch, so that others find a slot


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """One request of a batch."""

    custom_id: str
    path: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request; None as status: it was cancelled before it was answered."""

    status: int | None
    body: Any = None
    request_id: str = ""

    @property
    def is_success(self) -> bool:
        """Whether the request succeeded."""
        return self.status is not None and 200 <= self.status < 300


@dataclass(slots=True)
class BatchRun:
    """The requests of a batch, and the answers so far."""

    requests: Sequence[BatchRequest]
    answers: dict[int, Answer] = field(default_factory=dict)  # by the number of the request
    is_ended: bool = False
    _task: "asyncio.Task[None] | None" = None

    def start(self, app: ASGIApp, server: Server, ended: Callable[[], None]) -> None:
        """Begin; `ended` is called when all requests are answered or cancelled."""
        self._task = asyncio.create_task(self._run(app, server, ended))

    def cancel(self) -> None:
        """Answer no more requests."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self, app: ASGIApp, server: Server, ended: Callable[[], None]) -> None:
        waiting = iter(enumerate(self.requests))
        key = server.options.api_keys[0] if server.options.api_keys else ""

        async def work() -> None:
            for number, request in waiting:
                while (answer := await _answer(app, request, key)).status == _BUSY:
                    await asyncio.sleep(1)
                self.answers[number] = answer

        workers = [asyncio.create_task(work()) for _ in range(_AT_ONCE)]
        try:
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            for number in range(len(self.requests)):
                self.answers.setdefault(number, Answer(None))
            self.is_ended = True
            ended()


async def _answer(app: ASGIApp, request: BatchRequest, key: str) -> Answer:
    """Send a request to the application, as if a client had sent it."""
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    if key:
        headers.append((b"authorization", f"Bearer {key}".encode()))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": request.path,
        "raw_path": request.path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("batch", 0),
        "server": ("localhost", 0),
    }
    sent = [{"type": "http.request", "body": json.dumps(request.body).encode(), "more_body": False}]
    status, pieces, request_id = 500, list[bytes](), ""

    async def receive() -> Message:
        if sent:
            return sent.pop()
        return await asyncio.Future()  # the client does not disconnect

    async def send(message: Message) -> None:
        nonlocal status, request_id
        if message["type"] == "http.response.start":
            status = message["status"]
            named = {name.lower(): value for name, value in message["headers"]}
            request_id = named.get(b"x-request-id", b"").decode()
        else:
            pieces.append(message.get("body", b""))

    await app(scope, receive, send)
    return Answer(status, json.loads(b"".join(pieces) or b"null"), request_id)
