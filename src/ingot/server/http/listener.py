"""Listener: accepts connections up to the server's limit, and checks their deadlines.

A listening socket comes in; each connection goes out as a `Connection` with its transport. If
there are too many, the one that has waited longest without a request is closed, so a client that
opens connections and sends nothing loses its own. Connections are accepted one at a time, and
counted before the TLS handshake. It does not know what connections carry.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Collection
from contextlib import suppress

from ingot.server.http.connection import NO_CONNECTION, Connection, refusal
from ingot.server.http.connection_limits import ConnectionLimits

SPARE = 32  # connections beyond the limit, which only health endpoints may use
_PAUSE = 0.1  # seconds, after the system could not accept a connection


class Listener:
    """Accepts connections until it is closed."""

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[], Connection],
        *,
        connections: Collection[Connection],  # the open ones among those that `make` made
        max_connections: int,
        limits: ConnectionLimits,
        context: ssl.SSLContext | None,
    ) -> None:
        self.waiting: dict[object, Callable[[], object]] = {}  # how to close each, oldest first
        self._listening = listening
        self._make = make
        self._connections = connections
        self._max = max_connections
        self._limits = limits
        self._context = context
        self._opening: dict[Connection, asyncio.Task[None]] = {}
        listening.setblocking(False)
        self._accepting = asyncio.create_task(self._accept())
        self._watching = asyncio.create_task(self._watch())

    def is_full(self) -> bool:
        """Whether there are more connections than `max_connections`."""
        return len(self._connections) > self._max

    async def close(self) -> None:
        """Accept no more. Deadlines of open connections continue until the event loop ends."""
        self._accepting.cancel()
        for connection, opening in self._opening.items():
            if self._context is not None and connection not in self._connections:
                opening.cancel()  # in its TLS handshake; only there uvloop cleans up
        await asyncio.gather(self._accepting, *self._opening.values(), return_exceptions=True)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._listening)
            except OSError:  # no descriptors or memory, or the client has disconnected
                await asyncio.sleep(_PAUSE)
                continue
            if self._held() >= self._max and self.waiting:
                self.waiting.pop(next(iter(self.waiting)))()
                await asyncio.sleep(0)  # it is closed in the meantime
            if self._held() >= self._max + SPARE:
                self._turn_away(accepted)
                await asyncio.sleep(0)
                continue
            connection = self._make()
            self._opening[connection] = asyncio.create_task(self._open(connection, accepted))

    def _held(self) -> int:
        return len(self._connections) + len(self._opening)

    async def _open(self, connection: Connection, accepted: socket.socket) -> None:
        """Give a connection its transport, which closes the socket in any case."""
        if self._context is not None:
            self.waiting[connection] = self._opening[connection].cancel
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=self._limits.handshake_time if self._context else None,
            )
        except OSError:  # TLS errors too
            pass
        finally:
            del self._opening[connection]
            if connection not in self._connections:
                self.waiting.pop(connection, None)

    def _turn_away(self, accepted: socket.socket) -> None:
        """Close a connection without reading from it."""
        with accepted, suppress(OSError):
            if self._context is None:
                accepted.send(refusal(NO_CONNECTION))

    async def _watch(self) -> None:
        """Check the deadlines of all connections."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._limits.tick)
            for connection in list(self._connections):
                connection.check(loop.time())
