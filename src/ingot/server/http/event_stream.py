"""Streams of JSON, as server-sent events or as lines, which end when the client disconnects.

Events come in as bytes, which an endpoint makes from a `Generation`. It does not know their
content.
"""

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ingot.server.errors import ClientGoneError
from ingot.server.generation import disconnected
from ingot.server.http.json_response import dumps, json_pieces
from ingot.server.threads import iterate_in_threads

DONE = b"data: [DONE]\n\n"  # the end of OpenAI's streams

EVENTS = "text/event-stream; charset=utf-8"
LINES = "application/x-ndjson"

_HEADERS = (
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # a proxy would hold events back
)


# How the OpenAPI schema describes an endpoint that can stream.
STREAMED: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}}}}
STREAMED_LINES: dict[int | str, dict[str, Any]] = {200: {"content": {LINES: {}}}}


def event(value: object, name: str | None = None) -> bytes:
    """One event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {dumps(value)}\n\n".encode()


def line(value: object) -> bytes:
    """One line of JSON."""
    return f"{dumps(value)}\n".encode()


async def long_event(value: object) -> AsyncIterator[bytes]:
    """One event in pieces that are made in threads; iterators in the value become lists."""
    yield b"data: "
    async for piece in iterate_in_threads(json_pieces(value)):
        yield piece.encode()
    yield b"\n\n"


class WatchStream(Response):
    """A response whose events are sent until the client disconnects or the events end."""

    def __init__(self, events: AsyncIterator[bytes], content_type: str = EVENTS) -> None:
        super().__init__()
        self._content_type = (b"content-type", content_type.encode())
        self._events = events

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        sending = asyncio.create_task(self._send(send))
        gone = asyncio.create_task(disconnected(receive))
        try:
            await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, gone):
                task.cancel()
            await asyncio.gather(sending, gone, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        headers = [self._content_type, *_HEADERS]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for sent in self._events:
            await send({"type": "http.response.body", "body": sent, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


class Work(Protocol):
    """What a stream tells of: a context, and a way to end it early."""

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def cancel(self) -> None:
        """End it, because the client is gone."""


class EventStream(Response):
    """A response whose events are sent as tokens are generated."""

    def __init__(
        self, generation: Work, events: AsyncIterator[bytes], content_type: str = EVENTS
    ) -> None:
        super().__init__()
        self._content_type = (b"content-type", content_type.encode())
        self._generation = generation
        self._events = events

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; a client that disconnects cancels the generation."""
        gone = asyncio.create_task(self._cancel_when_gone(receive))
        # A task for itself: each event would otherwise pass through all frames of the application.
        sending = asyncio.create_task(self._send(send))
        try:
            async with self._generation:
                await sending
        finally:
            gone.cancel()
            sending.cancel()

    async def _send(self, send: Send) -> None:
        headers = [self._content_type, *_HEADERS]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async for sent in self._events:
                await send({"type": "http.response.body", "body": sent, "more_body": True})
        except ClientGoneError:
            return
        await send({"type": "http.response.body", "body": b""})

    async def _cancel_when_gone(self, receive: Receive) -> None:
        await disconnected(receive)
        self._generation.cancel()
