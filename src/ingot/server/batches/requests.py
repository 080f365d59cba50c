"""BatchRequest and Answer: a request of a batch as path and JSON, its answer as status and JSON.

`ask_app` sends a request to an application in this process. It does not know the form that an API
gives to a batch.
"""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message


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


async def ask_app(app: ASGIApp, request: BatchRequest, key: str = "") -> Answer:
    """Send a request to the application, as if a client with this API key had sent it."""
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
