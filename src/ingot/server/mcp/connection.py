"""McpConnection: one MCP server, from its start to its end, and calls of its tools.

A task of its own holds the connection, so that whatever happens to the server stays there: calls
get an `McpError`, and others notice nothing. A server that has failed is started again when a
request needs it, a few seconds later at the earliest.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import mcp_types as types
from mcp.client import ClientSession, IncomingMessage

from ingot import __version__
from ingot.server.mcp.link import Link
from ingot.server.mcp.stdio import process_link
from ingot.server.mcp.streamable_http import http_link
from ingot.server.mcp.tools import (
    McpError,
    McpResult,
    McpTimeoutError,
    McpTool,
    State,
    bounded,
)
from ingot.server.mcp_config import McpCommand, McpServerConfig

_OPEN_SECONDS = 60.0  # until a server has told its tools
_RETRY_SECONDS = 5.0  # from a failure to the next start
_AT_ONCE = 16  # calls of one server
_MOST_TOOLS = 256
_LONGEST_NAME = 256


class McpConnection:
    """A server of the configuration. All methods belong to one event loop."""

    def __init__(self, config: McpServerConfig, report: Callable[[str], None]) -> None:
        """`report` takes messages for the person who started Ingot."""
        self.config = config
        self.state: State = "stopped"
        self.error: str | None = None
        self.known_tools: tuple[McpTool, ...] = ()
        self._report = report
        self._task: asyncio.Task[None] | None = None
        self._session: _Session | None = None
        self._abort: Callable[[], None] | None = None
        self._settled = asyncio.Event()  # it is ready, or has failed
        self._failed_at = 0.0
        self._calls = asyncio.Semaphore(_AT_ONCE)

    @property
    def name(self) -> str:
        """The name in the configuration."""
        return self.config.name

    @property
    def transport(self) -> str:
        """How messages travel."""
        return "stdio" if isinstance(self.config.target, McpCommand) else "http"

    def start(self) -> None:
        """Begin to connect, unless that has begun."""
        if self._task is None or self._task.done():
            self.state, self.error = "starting", None
            self._settled.clear()
            self._task = asyncio.create_task(self._run(), name=f"mcp {self.name}")

    def stop(self) -> None:
        """Begin to end the connection and the server's process; current calls fail."""
        if self._task is not None:
            self._task.cancel()
        self.state, self.error = "stopped", "this server is stopping"

    async def close(self) -> None:
        """End the connection and the server's process."""
        self.stop()
        if self._task is not None:
            await asyncio.wait([self._task])

    def kill(self) -> None:
        """Kill the server's process at once."""
        if self._abort is not None:
            self._abort()

    async def tools(self) -> tuple[McpTool, ...]:
        """The server's tools, as they are now."""
        session = await self._ready()
        if session.tools_changed:
            async with self._within(_OPEN_SECONDS):
                self.known_tools = await session.tools()
        return self.known_tools

    async def call(self, tool: str, arguments: dict[str, Any]) -> McpResult:
        """Call a tool; a caller that is cancelled cancels the call."""
        session = await self._ready()
        async with self._within(self.config.timeout), self._calls:
            result = await session.call_tool(tool, arguments)
        content = [
            block.model_dump(mode="json", by_alias=True, exclude_none=True)
            for block in result.content
        ]
        return bounded(McpResult(content, result.structured_content, result.is_error))

    @asynccontextmanager
    async def _within(self, seconds: float) -> AsyncIterator[None]:
        """A time limit; what goes wrong becomes an `McpError` that names the server."""
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            raise McpTimeoutError(
                f"the MCP server {self.name!r} did not answer within {seconds:g} s"
            ) from None
        except Exception as error:
            reason = self.error or reason_of(error)
            raise McpError(f"the MCP server {self.name!r}: {reason}") from None

    async def _ready(self) -> "_Session":
        if self.state == "failed" and time.monotonic() - self._failed_at >= _RETRY_SECONDS:
            if self._task is not None:
                await asyncio.wait([self._task])  # the end of its process
            self.start()
        elif self._task is None:
            self.start()
        await self._settled.wait()
        if self._session is None:
            raise McpError(f"the MCP server {self.name!r} cannot be used: {self.error}")
        return self._session

    async def _run(self) -> None:
        try:
            async with self._link() as link, _Session(link) as session:
                self._abort = link.abort
                async with asyncio.timeout(_OPEN_SECONDS):
                    await _first(self._open(session), link)
                self._session = session
                self.state = "ready"
                self._settled.set()
                self._report(f"MCP server {self.name}: {len(self.known_tools)} tools")
                self._failed(await link.ended)
        except TimeoutError:
            self._failed(f"it did not answer within {_OPEN_SECONDS:g} s")
        except Exception as error:  # whatever a server does, it must not reach others
            self._failed(reason_of(error))
        finally:
            self._session = self._abort = None
            self._settled.set()

    async def _open(self, session: "_Session") -> None:
        await session.initialize()
        self.known_tools = await session.tools()

    def _link(self) -> AbstractAsyncContextManager[Link]:
        target = self.config.target
        return process_link(target) if isinstance(target, McpCommand) else http_link(target)

    def _failed(self, reason: str) -> None:
        self._session = None
        if self.state not in ("failed", "stopped"):
            self.state, self.error = "failed", reason
            self._failed_at = time.monotonic()
            self._report(f"MCP server {self.name} failed: {reason}")


class _Session(ClientSession):
    """A session that checks no results against schemas of the server, which may be costly."""

    def __init__(self, link: Link) -> None:
        self.tools_changed = True
        super().__init__(
            link.incoming,
            link.outgoing,
            message_handler=self._note,
            client_info=types.Implementation(name="ingot", version=__version__),
        )

    async def tools(self) -> tuple[McpTool, ...]:
        """All tools, from all pages of the list."""
        self.tools_changed = False
        found: list[McpTool] = []
        cursor: str | None = None
        while True:
            page = await self.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            found += map(_tool, page.tools)
            if len(found) > _MOST_TOOLS:
                raise McpError(f"it has more than {_MOST_TOOLS} tools")
            if not (cursor := page.next_cursor):
                return tuple(found)

    async def validate_tool_result(self, name: str, result: types.CallToolResult) -> None:
        """Accept the result."""

    async def _note(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.tools_changed = True


def _tool(given: types.Tool) -> McpTool:
    if not 0 < len(given.name) <= _LONGEST_NAME:
        raise McpError(f"the name of a tool has {len(given.name)} characters")
    read_only = given.annotations is not None and bool(given.annotations.read_only_hint)
    return McpTool(given.name, given.description or "", given.input_schema, read_only)


async def _first(work: Awaitable[None], link: Link) -> None:
    """Await something, unless the link ends before."""
    job = asyncio.ensure_future(work)
    try:
        await asyncio.wait((job, link.ended), return_when=asyncio.FIRST_COMPLETED)
        if link.ended.done():
            raise McpError(link.ended.result())
        await job
    finally:
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)


def reason_of(error: BaseException) -> str:
    """What went wrong, from inside of groups of exceptions."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return (str(error) or type(error).__name__)[:500]
