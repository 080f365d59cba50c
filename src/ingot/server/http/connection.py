"""Connection: one HTTP connection with limits and deadlines, whatever its client does.

Bytes come in from a socket; requests go out to the application, through uvicorn's protocol for
httptools. Added here: limits on what is kept before a request is complete, deadlines, and error
responses to invalid requests. It knows no endpoints, apart from those that also a full server
answers. `http.body` has the deadline of bodies.
"""

import asyncio
import json
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from http import HTTPStatus
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from ingot.server.error_bodies import error_body
from ingot.server.errors import ErrorInfo
from ingot.server.http.connection_limits import ConnectionLimits
from ingot.server.http.middleware import HEALTH_PATHS

NO_CONNECTION = ErrorInfo(
    503, "the server has no free connection; try again later", code="full", retry=True
)


class _Phase(Enum):
    HEAD = auto()  # waiting for headers, of which some may have arrived
    REQUEST = auto()  # reading a body, or sending a response
    REST = auto()  # the response is sent, but the end of its request has not arrived
    IDLE = auto()  # between requests
    REFUSED = auto()  # the client may read the error; nothing more is read from it


class _RefusedError(Exception):
    """Stops the parser."""


class Connection(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits and deadlines."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        *,
        limits: ConnectionLimits,
        waiting: dict[object, Callable[[], object]],
        is_full: Callable[[], bool],
    ) -> None:
        """`waiting` maps connections without a request to their close functions, oldest first."""
        super().__init__(config, server_state, app_state)
        self.url = b""
        self._limits = limits
        self._waiting = waiting
        self._is_full = is_full
        self._phase = _Phase.HEAD
        self._since = self.loop.time()  # when the phase began
        self._unused = 0  # bytes since the last complete headers or piece of a body
        self._in_body = False
        self._refusal: ErrorInfo | None = None
        self._unsent = 0  # bytes of responses that the system has not accepted yet
        self._unsent_since = self._since

    # From the transport.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request."""
        super().connection_made(transport)
        self._waiting[self] = transport.close

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up."""
        self._waiting.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse in pieces, so that the parser never holds more than the limit."""
        if self._phase is _Phase.IDLE:
            self._enter(_Phase.HEAD)
        start = 0
        while start < len(data) and self._phase is not _Phase.REFUSED:
            room = self._limits.head_bytes - self._unused
            if room <= 0:
                limit = self._limits.head_bytes
                self._refuse(ErrorInfo(431, f"the headers are larger than {limit} bytes"))
                return
            piece = data[start : start + room]
            start += len(piece)
            self._unused += len(piece)
            self._parse(piece)

    def _parse(self, piece: bytes) -> None:
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:  # to a protocol that is not supported
            self._take_no_more()
        except httptools.HttpParserError:
            if self._refusal is not None:
                self._refuse(self._refusal)
            elif self._phase is not _Phase.REFUSED:
                self._refuse(ErrorInfo(400, "this is not a valid HTTP request"))

    # From the parser.

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header. Trailers, which follow the body, are dropped."""
        if self._in_body:
            return
        if len(self.headers) >= self._limits.headers:
            limit = self._limits.headers
            self._refusal = ErrorInfo(431, f"there are more than {limit} headers")
            raise _RefusedError
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start a request, if the server has room for it."""
        if self._phase is _Phase.REQUEST:  # a pipelined request
            self._take_no_more()
            raise _RefusedError
        if self._is_full() and self.url.partition(b"?")[0].decode("latin-1") not in HEALTH_PATHS:
            self._refusal = NO_CONNECTION
            raise _RefusedError
        self._unused = 0
        self._in_body = True
        self._waiting.pop(self, None)
        self._enter(_Phase.REQUEST)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass on a piece of a body."""
        self._unused = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note the end of a request."""
        self._unused = 0
        self._in_body = False
        if self._phase is _Phase.REST:
            self._wait_for_next()
        super().on_message_complete()

    # From the response.

    def on_response_complete(self) -> None:
        """Wait for the end of the request, or for the next."""
        super().on_response_complete()
        self._unset_keepalive_if_required()  # `check` has that deadline
        if self._phase is _Phase.REQUEST and self._in_body:
            self._enter(_Phase.REST)
        elif self._phase is _Phase.REQUEST:
            self._wait_for_next()

    # Deadlines and the end.

    def check(self, now: float) -> None:
        """Close the connection if a deadline has passed. Called every `ConnectionLimits.tick`."""
        waited = now - self._since
        if self._is_stalled(now):
            self._drop()
            return
        match self._phase:
            case _Phase.HEAD if waited > self._limits.head_time:
                if self._unused:
                    limit = self._limits.head_time
                    self._refuse(ErrorInfo(408, f"the headers were not complete after {limit:g} s"))
                else:  # a browser opens connections in advance
                    self.transport.close()
            case _Phase.IDLE if waited > self._limits.keep_alive:
                self.transport.close()
            case _Phase.REST | _Phase.REFUSED if waited > self._limits.linger_time:
                self._drop()

    def _is_stalled(self, now: float) -> bool:
        """Whether the client has read nothing of its response for too long."""
        unsent = self.transport.get_write_buffer_size()
        held = unsent > 0 and (self.flow.write_paused or self.transport.is_closing())
        if not held or unsent < self._unsent:
            self._unsent_since = now
        self._unsent = unsent
        return now - self._unsent_since > self._limits.stalled_time

    def _drop(self) -> None:
        """Close with a reset, so that the system drops what the client has not read."""
        with suppress(OSError):
            self.transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
        self.transport.abort()

    def _enter(self, phase: _Phase) -> None:
        self._phase = phase
        self._since = self.loop.time()

    def _wait_for_next(self) -> None:
        self._enter(_Phase.IDLE)
        self._waiting[self] = self.transport.close

    def _take_no_more(self) -> None:
        """Close after the current response."""
        self.cycle.keep_alive = False
        self._phase = _Phase.REFUSED
        self._since = float("inf")

    def _refuse(self, info: ErrorInfo) -> None:
        """Send an error, read no more, and close when the client has had time to read it."""
        self._waiting.pop(self, None)
        self._enter(_Phase.REFUSED)
        if self.transport.is_closing():
            return
        answered = False
        if self.cycle is not None and not self.cycle.response_complete:
            answered = self.cycle.response_started
            self.cycle.disconnected = True  # the application stops
            self.cycle.message_event.set()
        if not answered:
            self.transport.write(refusal(info, self.url.decode("latin-1")))
        if self.transport.can_write_eof() and not answered:
            self.transport.write_eof()
        else:  # TLS, or a response that breaks off
            self.transport.close()


def refusal(info: ErrorInfo, path: str = "") -> bytes:
    """The whole response to a request that was not read."""
    body = json.dumps(error_body(path, info)).encode()
    headers = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        "connection": "close",
        **info.headers,
    }
    status = HTTPStatus(info.status)
    lines = [f"HTTP/1.1 {status.value} {status.phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
