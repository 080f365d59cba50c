"""Runs a server as a process: the listening socket, signals, shutdown.

After the first signal (SIGTERM, Ctrl-C), current requests may finish within the options' grace
period; then they are cancelled, and their clients get an error. A second signal cancels them at
once, a third one ends the process.
"""

import asyncio
import errno
import gc
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Collection
from math import ceil
from types import FrameType
from typing import cast

import uvicorn

from ingot.errors import ConfigError
from ingot.machine import claim_address
from ingot.server.app import application
from ingot.server.http.connection import Connection
from ingot.server.http.connection_limits import room_for
from ingot.server.http.listener import SPARE, Listener
from ingot.server.options import ServerOptions
from ingot.server.state import Server

_BACKLOG = 2048
# The step thread lets go of the interpreter lock in every call to a GPU. If it had to wait 5 ms
# (Python's default) to get it back from the thread that answers clients, steps would stand still.
_SWITCH_SECONDS = 0.0002
_MOST_NAMES = 8  # of models, in the line at the start
_LAST_SECONDS = 30  # after the grace period, for clients that read slowly


def serve(options: ServerOptions, report: Callable[[str], None]) -> None:
    """Serve until a signal comes; `report` takes messages for the person who started it."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    _check_certificate(options)
    listening = _bind(options.host, options.port)
    connections = room_for(options.max_connections, SPARE)
    if connections < options.max_connections:
        report(f"connections: {connections}, because of the limit on open files (ulimit -n)")
    server = Server(options, report)
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
    address = shown_address(options, listening.getsockname()[1])
    process = _Process(config, server, address, connections, report)
    try:
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(_serve(process, server, listening))
    finally:
        listening.close()
    if process.last_signal == signal.SIGINT:
        raise KeyboardInterrupt


async def _serve(process: "_Process", server: Server, listening: socket.socket) -> None:
    await server.catalog.open_first()  # a model that cannot be opened fails here
    # What is there now stays. Collections that looked at it again took a quarter of a second, in
    # which no client got a token.
    gc.collect()
    gc.freeze()
    await process.serve(sockets=[listening])


class _Process(uvicorn.Server):
    """uvicorn's server with our listener, and with a grace period for current requests."""

    def __init__(
        self,
        config: uvicorn.Config,
        server: Server,
        address: str,
        max_connections: int,
        report: Callable[[str], None],
    ) -> None:
        super().__init__(config)
        self.servers = []  # asyncio's, which `_listener` replaces
        self._server = server
        self._address = address
        self._max_connections = max_connections
        self._report = report
        self._signals = 0
        self.last_signal: int | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            raise ConfigError("the server could not start; the log has the reason")
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
        self._report(f"serving {_listed(self._server.catalog.entries)} at {self._address}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and wait for the open ones."""
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
        """Handle a signal."""
        self._signals += 1
        self.last_signal = sig
        if self._signals > 2:
            self._server.mcp.kill()
            os._exit(128 + sig)
        self._server.drain()
        self.should_exit = True
        asyncio.get_running_loop().call_soon_threadsafe(self._wind_up, self._signals)

    def _wind_up(self, signals: int) -> None:
        """Start the grace period, or end it."""
        if signals > 1:
            self._server.stop_generations()
            return
        grace = self._server.options.shutdown_grace
        if count := len(self._server.generations):
            self._report(f"stopping: {count} current requests have {grace:g} s to finish")
        asyncio.get_running_loop().call_later(grace, self._server.stop_generations)


def _listed(names: Collection[str]) -> str:
    """The names of the first models, and how many more there are."""
    shown = ", ".join(list(names)[:_MOST_NAMES]) or "no model yet"
    return f"{shown} and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else shown


def _check_certificate(options: ServerOptions) -> None:
    """Check both files before uvicorn does, whose error does not name them."""
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
    """A listening socket. It is made before the model is opened, which is slow."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"cannot listen on {host}: {error}") from None
    listening = socket.socket(family, kind, protocol)
    try:
        claim_address(listening)
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
                f"another program already listens on {host}:{port}; stop it, or choose another "
                "port with --port"
            )
        case errno.EACCES:
            return f"this user may not listen on port {port}; choose one above 1023 with --port"
        case _:
            return f"cannot listen on {host}:{port}: {error.strerror}"


def free_address(options: ServerOptions) -> int:
    """A port at which another process can listen; an error if the address cannot be used."""
    _check_certificate(options)
    with _bind(options.host, options.port) as listening:
        return int(listening.getsockname()[1])


def shown_address(options: ServerOptions, port: int) -> str:
    """The URL of a server."""
    scheme = "https" if options.tls_certificate else "http"
    host = f"[{options.host}]" if ":" in options.host else options.host
    return f"{scheme}://{host}:{port}"
