"""RequestMiddleware: what every request passes before and after its endpoint.

It gives requests their id, and refuses those of foreign pages in a browser, those without an API
key, those whose body is too large, too slow or not JSON, and all of them while the server is about
to stop. It writes the access log. It does not know endpoints, apart from those that need no key.
"""

import hashlib
import hmac
import json
import logging
import re
import time
import uuid
from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ingot.server.error_bodies import error_body
from ingot.server.errors import (
    ApiError,
    ClientGoneError,
    ErrorInfo,
    error_info,
    stopping_error,
)
from ingot.server.http.access_log import AccessRecord, set_record
from ingot.server.http.body import BodyReader
from ingot.server.http.origins import Origins
from ingot.server.state import Server

_log = logging.getLogger("ingot.server")

# What a browser must see before it can ask for a key, and what supervisors ask.
_PUBLIC = frozenset({"/", "/docs", "/favicon.ico", "/health", "/v1/health", "/ready"})
_PUBLIC_FOLDERS = ("/page/",)
# Answered also while the server is stopping, or has no free connection.
HEALTH_PATHS = frozenset({"/health", "/v1/health", "/ready", "/metrics"})

_UPLOADS, _FORM = "/v1/files", "multipart/form-data"  # the one endpoint that takes a form
_OLLAMA = "/api/"
_FROM_BROWSERS = ("origin", "referer", "cookie", "sec-fetch-site", "sec-fetch-mode")
_ID = re.compile(r"[\w.-]{1,128}", re.ASCII)
_JSON = re.compile(r"application/([\w.-]+\+)?json", re.ASCII)
CLIENT_CLOSED = 499  # the client disconnected before the response


class RequestMiddleware:
    """ASGI middleware around all endpoints."""

    def __init__(self, app: ASGIApp, server: Server) -> None:
        self._app = app
        self._server = server
        self._origins = Origins(server.options)
        self._keys = [_digest(key) for key in server.options.api_keys]
        self._bodies = BodyReader(server.options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to its endpoint, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        record = AccessRecord(_request_id(headers))
        set_record(scope, record)
        status = CLIENT_CLOSED
        is_head = scope["method"] == "HEAD"  # answered like a GET, without the body
        asked = {**scope, "method": "GET"} if is_head else scope

        async def respond(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = record.id
            elif is_head:
                message = {**message, "body": b""}
            await send(message)

        try:
            try:
                self._admit(scope, headers)
                with self._bodies.share(headers.get("content-length", "0")) as share:
                    is_file = scope["path"] == _UPLOADS and _media_type(headers) == _FORM
                    body = await self._bodies.read(receive, share, is_json=not is_file)
                    if _is_from_program(scope["path"], headers):
                        asked = {**asked, "headers": _as_json(asked["headers"])}
                    elif not is_file:
                        _check_content_type(body, headers)
                    await self._app(asked, _replay(body, receive), respond)
            except ClientGoneError:
                pass
            except ApiError as error:
                await _refuse(scope, error.info, respond)
            except Exception as error:
                _log.exception("request %s: %s %s", record.id, scope["method"], scope["path"])
                if status != CLIENT_CLOSED:  # the response has begun: it can only break off
                    raise
                await _refuse(scope, error_info(error), respond)
        finally:
            seconds = time.perf_counter() - record.started
            path = getattr(asked.get("route"), "path", "other")
            self._server.metrics.observe(record, scope["method"], path, status, seconds)
            self._server.history.end(record)
            if self._server.options.access_log:
                record.log(scope, status, seconds)

    def _admit(self, scope: Scope, headers: Headers) -> None:
        """Refuse a request by its headers."""
        path = scope["path"]
        self._origins.check(scope["method"], scope["http_version"], headers)
        if self._server.draining and path not in HEALTH_PATHS:
            raise stopping_error()
        is_public = path in _PUBLIC or path.startswith(_PUBLIC_FOLDERS)
        if self._keys and not is_public and not self._is_valid_key(_given_key(headers)):
            raise ApiError(
                401,
                "a valid API key is required: Authorization: Bearer KEY, or x-api-key: KEY",
                code="invalid_api_key",
            )

    def _is_valid_key(self, key: str) -> bool:
        """Whether a key is one of the server's; the time taken reveals nothing about them."""
        given = _digest(key)
        matches = [hmac.compare_digest(given, known) for known in self._keys]
        return any(matches)


def _request_id(headers: Headers) -> str:
    """The client's own id, if it can be logged, or a new one."""
    given = headers.get("x-request-id", "")
    return given if _ID.fullmatch(given) else uuid.uuid4().hex


def _given_key(headers: Headers) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _media_type(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _is_from_program(path: str, headers: Headers) -> bool:
    """Whether a request to Ollama's API is surely not from a page.

    Ollama's own examples and many of its clients send JSON without saying so.
    """
    return path.startswith(_OLLAMA) and not any(name in headers for name in _FROM_BROWSERS)


def _as_json(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    others = [(name, value) for name, value in headers if name.lower() != b"content-type"]
    return [*others, (b"content-type", b"application/json")]


def _check_content_type(body: bytes, headers: Headers) -> None:
    """Refuse a body that is not declared as JSON.

    A page can make a browser send other types to any server without asking it first.
    """
    if body and not _JSON.fullmatch(_media_type(headers)):
        raise ApiError(400, "the body must be JSON, with the header Content-Type: application/json")


def _replay(body: bytes, receive: Receive) -> Receive:
    """A body that was read, for the application to read again; then whatever comes."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def take() -> Message:
        return messages.pop() if messages else await receive()

    return take


async def _refuse(scope: Scope, info: ErrorInfo, send: Send) -> None:
    body = json.dumps(error_body(scope["path"], info)).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    raw = [
        (name.lower().encode(), value.encode())
        for name, value in (headers | dict(info.headers)).items()
    ]
    if info.status == 401:
        raw.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": info.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
