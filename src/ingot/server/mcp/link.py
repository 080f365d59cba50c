"""Link: the two streams of messages between this server and an MCP server, and their end."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

MAX_MESSAGE = 4 << 20  # bytes of a message from an MCP server

Incoming = SessionMessage | Exception


@dataclass(frozen=True, slots=True)
class Link:
    """Messages from the server, messages to it, and why it has ended, once it has."""

    incoming: MemoryObjectReceiveStream[Incoming]
    outgoing: MemoryObjectSendStream[SessionMessage]
    abort: Callable[[], None] = lambda: None  # ends the server at once
    ended: "asyncio.Future[str]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def end(self, reason: str) -> None:
        """Say why no more messages come; only the first reason counts."""
        if not self.ended.done():
            self.ended.set_result(reason)
