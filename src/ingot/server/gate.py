"""Gate: what every request passes before it reaches an endpoint, and after.

It gives requests their id. It refuses those that a page elsewhere makes, those without a key,
those that are too large, come too slowly or would take too long to parse and, while the server is
about to stop, all of them. It writes the access log. It does not know endpoints, apart from those
that everybody may see.
"""

import asyncio
import hashlib
import hmac
import json
import logging
import re
import sys
import time
import uuid
from datetime import UTC, datetime
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ingot.server.body_limits import BodyCheck
from ingot.server.call import Call, set_call
from ingot.server.errors import ApiError, ClientGoneError, Facts, error_body, facts_of
from ingot.server.options import ServerOptions
from ingot.server.origins import Origins
from ingot.server.state import Server

_log = logging.getLogger("ingot.server")

# What a browser must see before it can ask for a key, and what watches over a server.
_PUBLIC = frozenset({"/", "/docs", "/favicon.ico", "/health", "/v1/health", "/ready"})
_PUBLIC_FOLDERS = ("/page/",)
# Also answered while the server stops, or has no free connection.
WATCHED = frozenset({"/health", "/v1/health", "/ready", "/metrics"})

_ID = re.compile(r"[\w.-]{1,128}", re.ASCII)
CLIENT_CLOSED = 499  # nobody was there to hear the answer


class Gate:
    """ASGI middleware around all endpoints."""

    def __init__(self, app: ASGIApp, server: Server) -> None:
        self._app = app
        self._server = server
        self._origins = Origins(server.options)
        self._keys = [_digest(key) for key in server.options.api_keys]
        self._check = BodyCheck()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        call = Call(_request_id(headers))
        set_call(scope, call)
        status = CLIENT_CLOSED

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = call.id
            await send(message)

        try:
            try:
                self._admit(scope, headers)
                body = await _read_body(receive, self._server.options)
                await self._check(body)
                await self._app(scope, _again(body, receive), answer)
            except ClientGoneError:
                pass
            except ApiError as error:
                await _refuse(scope, error.facts, answer)
            except Exception as error:
                _log.exception("request %s: %s %s", call.id, scope["method"], scope["path"])
                if status != CLIENT_CLOSED:  # the answer has begun: it can only break off
                    raise
                await _refuse(scope, facts_of(error), answer)
        finally:
            self._note(call, scope, status)

    def _admit(self, scope: Scope, headers: Headers) -> None:
        """Refuse what is not to be answered."""
        path = scope["path"]
        self._origins.check(scope["method"], scope["http_version"], headers)
        if self._server.draining and path not in WATCHED:
            raise ApiError(
                503, "the server is stopping; ask again", code="server_stopping", retry=True
            )
        is_public = path in _PUBLIC or path.startswith(_PUBLIC_FOLDERS)
        if self._keys and not is_public and not self._knows(_given_key(headers)):
            raise ApiError(
                401,
                "a valid API key is needed: Authorization: Bearer KEY, or x-api-key: KEY",
                code="invalid_api_key",
            )
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self._server.options.max_body:
            raise _too_large(self._server.options.max_body)

    def _knows(self, key: str) -> bool:
        """Whether a key is one of ours; the time it takes says nothing about them."""
        given = _digest(key)
        matches = [hmac.compare_digest(given, known) for known in self._keys]
        return any(matches)

    def _note(self, call: Call, scope: Scope, status: int) -> None:
        seconds = time.perf_counter() - call.started
        route = scope.get("route")
        path = getattr(route, "path", "other")
        self._server.metrics.observe(call, scope["method"], path, status, seconds)
        line: dict[str, Any] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "id": call.id,
            "client": (scope.get("client") or ("-",))[0],
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "seconds": round(seconds, 4),
        }
        if call.model is not None:
            line |= {
                "model": call.model,
                "prompt_tokens": call.prompt_tokens,
                "reused_tokens": call.reused_tokens,
                "generated_tokens": call.generated_tokens,
            }
        print(" ".join(f"{name}={_logged(value)}" for name, value in line.items()), file=sys.stderr)


def _logged(value: Any) -> str:
    """A value for the log, in quotes where it would not be read back as one word."""
    text = str(value)
    plain = text.isascii() and text.isprintable() and not set(text) & set(' "=\\') and text
    return text if plain else json.dumps(text)


def _request_id(headers: Headers) -> str:
    """The id that the client gave, if it can be logged, or a new one."""
    given = headers.get("x-request-id", "")
    return given if _ID.fullmatch(given) else uuid.uuid4().hex


def _given_key(headers: Headers) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _too_large(limit: int) -> ApiError:
    return ApiError(413, f"the request is larger than {limit} bytes, the limit of this server")


async def _read_body(receive: Receive, options: ServerOptions) -> bytes:
    """The whole body, if it is not longer than allowed and does not come too slowly."""
    limits = options.limits
    pieces: list[bytes] = []
    taken = in_time = 0
    try:
        async with asyncio.timeout(limits.body_time) as deadline:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError("the client has gone")
                pieces.append(message.get("body", b""))
                taken += len(pieces[-1])
                if taken > options.max_body:
                    raise _too_large(options.max_body)
                if not message.get("more_body", False):
                    return b"".join(pieces)
                if taken - in_time >= limits.body_bytes:
                    in_time = taken
                    deadline.reschedule(asyncio.get_running_loop().time() + limits.body_time)
    except TimeoutError:
        raise ApiError(
            408,
            f"the body comes too slowly: {limits.body_time:g} s brought neither its end nor "
            f"{limits.body_bytes} bytes",
        ) from None


def _again(body: bytes, receive: Receive) -> Receive:
    """A body that was read, to be read once more; then whatever comes."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def take() -> Message:
        return messages.pop() if messages else await receive()

    return take


async def _refuse(scope: Scope, facts: Facts, send: Send) -> None:
    body = json.dumps(error_body(scope["path"], facts)).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    raw = [
        (name.lower().encode(), value.encode())
        for name, value in (headers | dict(facts.headers)).items()
    ]
    if facts.status == 401:
        raw.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": facts.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
