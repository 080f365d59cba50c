"""An MCP server as a child process: JSON messages, one per line, on its stdin and stdout.

The process has a session of its own, so that it and its children can be ended together. What it
sends is read no faster than the `Throttle` allows, and a line has at most `MAX_MESSAGE` bytes. Of
its stderr the last lines are kept, to say why it ended. The package `mcp` has such a transport,
too, but it reads a line of any length into memory.
"""

import asyncio
import logging
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from ingot.errors import ConfigError
from ingot.machine import end_group, new_group
from ingot.server.mcp.link import MAX_MESSAGE, Incoming, Link
from ingot.server.mcp.throttle import Throttle
from ingot.server.mcp_config import McpCommand

_log = logging.getLogger(__name__)
_EXIT_SECONDS = 2.0  # to end by itself after its stdin is closed, and again after SIGTERM
_REASON_SECONDS = 2.0  # to learn why a process whose pipe has closed is ending
_KEPT = 2000  # characters of stderr


@asynccontextmanager
async def process_link(target: McpCommand) -> AsyncIterator[Link]:
    """Start the program and exchange messages with it; at the end of the context it ends."""
    process = await _started(target)
    send, incoming = anyio.create_memory_object_stream[Incoming](0)
    outgoing, receive = anyio.create_memory_object_stream[SessionMessage](0)
    link = Link(incoming, outgoing, lambda: _kill(process))
    said = _Tail()
    throttle = Throttle()
    tasks = [
        asyncio.create_task(_read(process, send, link, throttle)),
        asyncio.create_task(_write(process, receive, link)),
        asyncio.create_task(said.keep(process, throttle)),
        asyncio.create_task(_watch(process, link, said)),
    ]
    try:
        yield link
    finally:
        try:
            await _stop(process)
        finally:
            _kill(process)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # There is no public way to close pipes that are full, or that a child holds open.
            vars(process)["_transport"].close()
            for stream in (send, incoming, outgoing, receive):
                stream.close()


async def _started(target: McpCommand) -> Process:
    try:
        return await asyncio.create_subprocess_exec(
            target.command,
            *target.args,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env={**get_default_environment(), **target.env},
            cwd=target.cwd,
            limit=MAX_MESSAGE,
            **new_group(),
        )
    except OSError as error:
        raise ConfigError(f"cannot run {target.command!r}: {error.strerror}") from None


async def _read(
    process: Process, send: MemoryObjectSendStream[Incoming], link: Link, throttle: Throttle
) -> None:
    assert process.stdout is not None
    try:
        while line := await process.stdout.readline():
            await throttle.spend(size=len(line), messages=1)
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                _log.debug("a line that is no message: %.200r", line)
            else:
                await send.send(SessionMessage(message))
    except ValueError:  # of `readline`
        link.end(f"it sent a message of more than {MAX_MESSAGE >> 20} MiB")
    except (anyio.ClosedResourceError, anyio.BrokenResourceError):
        pass  # the session has ended
    finally:
        # Calls fail with the reason, if there is one.
        await asyncio.wait([link.ended], timeout=_REASON_SECONDS)
        send.close()


async def _write(
    process: Process, receive: MemoryObjectReceiveStream[SessionMessage], link: Link
) -> None:
    assert process.stdin is not None
    try:
        async for message in receive:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode() + b"\n")
            await process.stdin.drain()
    except OSError:
        await asyncio.wait([link.ended], timeout=_REASON_SECONDS)  # a process that ended says more
        link.end("it reads no messages any more")


async def _watch(process: Process, link: Link, said: "_Tail") -> None:
    """Tell the link when the process has ended, with its last words."""
    status = await process.wait()
    await asyncio.wait([said.complete], timeout=0.5)  # a child may hold stderr open
    ended = f"by signal {-status}" if status < 0 else f"with status {status}"
    link.end(f"its process ended {ended}{said.words}")


class _Tail:
    """The end of what a process writes to stderr."""

    def __init__(self) -> None:
        self._text = ""
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def keep(self, process: Process, throttle: Throttle) -> None:
        """Read to the end."""
        assert process.stderr is not None
        try:
            while piece := await process.stderr.read(1 << 16):
                await throttle.spend(size=len(piece))
                self._text = (self._text + piece.decode("utf-8", "replace"))[-_KEPT:]
        finally:
            if not self.complete.done():
                self.complete.set_result(None)

    @property
    def words(self) -> str:
        """The last line, for a message."""
        lines = [line.strip() for line in self._text.splitlines() if line.strip()]
        return f": {lines[-1][:300]}" if lines else ""


async def _stop(process: Process) -> None:
    """End a process: close its stdin, then SIGTERM. `_kill` comes after that."""
    if process.stdin is not None:
        process.stdin.close()
    for last in (False, True):
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _EXIT_SECONDS)
            return
        if not last:
            end_group(process.pid, force=False)


def _kill(process: Process) -> None:
    """Kill what is left of a process and of its children."""
    end_group(process.pid, force=True)
