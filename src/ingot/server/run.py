"""From a server's options to a process that serves: the socket, the signals, the end.

The first signal (SIGTERM, Ctrl-C) lets texts that are being written come to their end, for as
long as the options say; then they are ended, and their readers told. A second one ends them now, a
third one the process.
"""

import asyncio
import errno
import os
import signal
import socket
import ssl
from collections.abc import Callable
from math import ceil
from types import FrameType
from typing import cast

import uvicorn

from ingot.errors import ConfigError
from ingot.server.app import application
from ingot.server.connection import Connection
from ingot.server.limits import room_for
from ingot.server.listener import SPARE, Listener
from ingot.server.options import ServerOptions
from ingot.server.state import Server

_BACKLOG = 2048
_LAST_SECONDS = 30  # for readers that are slow to take the end of their texts


def serve(options: ServerOptions, tell: Callable[[str], None]) -> None:
    """Serve until a signal comes; `tell` is for the person who started it."""
    _check_certificate(options)
    listening = _bind(options.host, options.port)
    connections = room_for(options.max_connections, SPARE)
    if connections < options.max_connections:
        tell(f"connections: {connections}; the limit of open files (ulimit -n) allows no more")
    server = Server(options, tell)
    config = uvicorn.Config(
        application(server),
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        ssl_certfile=options.tls_certificate,
        ssl_keyfile=options.tls_key,
        ws="none",
        timeout_graceful_shutdown=ceil(options.shutdown_grace) + _LAST_SECONDS,
    )
    process = _Process(config, server, _address(options, listening), connections, tell)
    try:
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(_serve(process, server, listening))
    finally:
        listening.close()
    if process.last_signal == signal.SIGINT:
        raise KeyboardInterrupt


async def _serve(process: "_Process", server: Server, listening: socket.socket) -> None:
    (await server.catalog.lease()).release()  # what is wrong with the model is said here
    await process.serve(sockets=[listening])


class _Process(uvicorn.Server):
    """uvicorn's server, with its own listener, which ends texts when their time is over."""

    def __init__(
        self,
        config: uvicorn.Config,
        server: Server,
        address: str,
        max_connections: int,
        tell: Callable[[str], None],
    ) -> None:
        super().__init__(config)
        self.servers = []  # of asyncio; `_listener` is there for them
        self._server = server
        self._address = address
        self._max_connections = max_connections
        self._tell = tell
        self._signals = 0
        self.last_signal: int | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            raise ConfigError("the server could not start; its log says why")
        assert sockets is not None
        self._listener = Listener(
            sockets[0],
            self._connection,
            connections=cast("set[Connection]", self.server_state.connections),
            max_connections=self._max_connections,
            limits=self._server.options.limits,
            context=self.config.ssl,
        )
        self.started = True
        names = ", ".join(self._server.catalog.entries)
        self._tell(f"serving {names} at {self._address}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nothing more, and let what is open come to its end."""
        await self._listener.close()
        await super().shutdown(sockets)

    def _connection(self) -> Connection:
        return Connection(
            self.config,
            self.server_state,
            self.lifespan.state,
            limits=self._server.options.limits,
            waiting=self._listener.waiting,
            is_full=self._listener.is_full,
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Take a signal: begin to stop, or stop now."""
        self._signals += 1
        self.last_signal = sig
        if self._signals > 2:
            os._exit(128 + sig)
        self._server.drain()
        self.should_exit = True
        asyncio.get_running_loop().call_soon_threadsafe(self._wind_up, self._signals)

    def _wind_up(self, signals: int) -> None:
        """Let texts end, or end them."""
        if signals > 1:
            self._server.stop_texts()
            return
        grace = self._server.options.shutdown_grace
        if texts := len(self._server.writings):
            self._tell(f"stopping: requests that are being answered: {texts}, for {grace:g} s more")
        asyncio.get_running_loop().call_later(grace, self._server.stop_texts)


def _check_certificate(options: ServerOptions) -> None:
    """See that both files are what TLS needs, while they can be named."""
    if options.tls_certificate is None:
        return
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.tls_certificate, options.tls_key)
    except OSError as error:
        raise ConfigError(
            f"TLS cannot use {options.tls_certificate} with the key {options.tls_key}: {error}"
        ) from None


def _bind(host: str, port: int) -> socket.socket:
    """A socket that listens there, before anything slow is begun."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"cannot listen on {host}: {error}") from None
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise ConfigError(_why_not(host, port, error)) from None
    return listening


def _why_not(host: str, port: int, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"another program listens on {host}:{port} already; stop it, or choose another "
                "port: --port"
            )
        case errno.EACCES:
            return f"this user may not listen on port {port}; choose one above 1023: --port"
        case _:
            return f"cannot listen on {host}:{port}: {error.strerror}"


def _address(options: ServerOptions, listening: socket.socket) -> str:
    scheme = "https" if options.tls_certificate else "http"
    host = f"[{options.host}]" if ":" in options.host else options.host
    return f"{scheme}://{host}:{listening.getsockname()[1]}"
