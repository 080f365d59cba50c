"""Server-sent events: a stream of them as an HTTP answer, which ends when the client goes.

Comes in: events as bytes, made by an endpoint from a `Writing`. It does not know what they say.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ingot.server.errors import ClientGoneError
from ingot.server.writing import Writing, disconnected

DONE = b"data: [DONE]\n\n"  # how OpenAI's streams end

_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # or a proxy may hold events back
)


# What an endpoint that streams says about it in the API's description.
STREAMED: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}}}}


def dumps(value: object) -> str:
    """Compact JSON. Half a surrogate pair, which UTF-8 cannot have, is escaped."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def event(value: object, name: str | None = None) -> bytes:
    """One event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {dumps(value)}\n\n".encode()


class EventStream(Response):
    """An answer whose events come as the texts are written."""

    media_type = "text/event-stream"

    def __init__(self, writing: Writing, events: AsyncIterator[bytes]) -> None:
        super().__init__()
        self._writing = writing
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the events; who goes away stops the texts."""
        gone = asyncio.create_task(self._stop_when_gone(receive))
        try:
            async with self._writing:
                await send(
                    {"type": "http.response.start", "status": 200, "headers": list(_HEADERS)}
                )
                try:
                    async for made in self._events:
                        await send({"type": "http.response.body", "body": made, "more_body": True})
                except ClientGoneError:
                    return
                await send({"type": "http.response.body", "body": b""})
        finally:
            gone.cancel()

    async def _stop_when_gone(self, receive: Receive) -> None:
        await disconnected(receive)
        self._writing.cancel()
