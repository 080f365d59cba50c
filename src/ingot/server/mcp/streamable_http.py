"""An MCP server at a URL: streamable HTTP, whose responses have bounded sizes and rates."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from ingot.server.mcp.link import MAX_MESSAGE, Incoming, Link
from ingot.server.mcp.throttle import Throttle
from ingot.server.mcp_config import McpUrl

_CONNECT_SECONDS = 15.0
_EVENTS = "text/event-stream"


@asynccontextmanager
async def http_link(target: McpUrl) -> AsyncIterator[Link]:
    """Connect to a server until the end of the context."""
    throttle = Throttle()
    # A server may hold a stream open, so reading has no time limit; calls have their own.
    client = httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **target.headers},
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None),
        transport=_BoundedTransport(throttle),
    )
    send, incoming = anyio.create_memory_object_stream[Incoming](0)
    async with (
        client,
        streamable_http_client(target.url, http_client=client, max_sse_event_size=MAX_MESSAGE) as (
            received,
            outgoing,
        ),
    ):
        sent, to_send = anyio.create_memory_object_stream[SessionMessage](0)

        async def forward() -> None:
            async for message in received:
                await throttle.spend(messages=1)
                await send.send(message)

        async def send_on() -> None:
            async for message in to_send:
                await outgoing.send(message)

        tasks = [asyncio.create_task(forward()), asyncio.create_task(send_on())]
        try:
            yield Link(incoming, sent)
        finally:
            for task in tasks:
                task.cancel()
            # Before any await, which is cancelled if the transport has failed.
            for stream in (send, incoming, sent, to_send):
                stream.close()
            await asyncio.gather(*tasks, return_exceptions=True)


class _BoundedTransport(httpx2.AsyncHTTPTransport):
    """Reads responses no faster than the throttle allows, and refuses those that are too long."""

    def __init__(self, throttle: Throttle) -> None:
        super().__init__()
        self._throttle = throttle

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request."""
        response = await super().handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.RemoteProtocolError("the MCP server compresses its response, unasked")
        is_stream = response.headers.get("content-type", "").startswith(_EVENTS)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _BoundedBytes(response.stream, self._throttle, is_stream=is_stream)
        return response


class _BoundedBytes(httpx2.AsyncByteStream):
    def __init__(
        self, inner: httpx2.AsyncByteStream, throttle: Throttle, *, is_stream: bool
    ) -> None:
        self._inner = inner
        self._throttle = throttle
        self._is_stream = is_stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        total = 0
        async for piece in self._inner:
            await self._throttle.spend(size=len(piece))
            total += len(piece)
            if total > MAX_MESSAGE and not self._is_stream:
                raise httpx2.RemoteProtocolError(
                    f"the MCP server sent more than {MAX_MESSAGE >> 20} MiB"
                )
            yield piece

    async def aclose(self) -> None:
        """Close the connection."""
        await self._inner.aclose()
