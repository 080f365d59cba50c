"""ToolRounds: an answer in several rounds, between which the server calls tools of MCP servers.

A chat and the tools of its request come in. What the model says and what tools return go out, piece
by piece. The tools run until the model answers without calling one, or until something is called
that the client has to run or to approve. Rounds and their time are limited; after that the model
answers without tools. It does not know the JSON of bodies and responses.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from starlette.types import Message, Receive

from ingot.engine import Completion
from ingot.reply import Event, Reply, ToolCall
from ingot.reply.events import joined
from ingot.server.chat import Chat, PreparedChat, ReplyReader
from ingot.server.errors import ClientGoneError, stopping_error
from ingot.server.generation import Generation, Piece, while_connected
from ingot.server.http.access_log import AccessRecord
from ingot.server.mcp.servers import OfferedTool
from ingot.server.mcp.tools import McpError, McpResult, failure
from ingot.server.state import Server


@dataclass(frozen=True, slots=True)
class CallRun:
    """A call of a tool; while it runs, there is no result."""

    call: ToolCall
    tool: OfferedTool
    result: McpResult | None = None


@dataclass(frozen=True, slots=True)
class RoundEnd:
    """The end of what the model says in a round."""

    completion: Completion
    reply: Reply


RoundEvent = Event | Piece | CallRun | RoundEnd  # a `Piece` tells the progress of a prompt


class ToolRounds:
    """The rounds of one request; a context, at whose end everything that still runs ends."""

    def __init__(
        self,
        server: Server,
        model: str | None,
        record: AccessRecord,
        chat: Chat,
        offered: Mapping[str, OfferedTool],
        *,
        most_calls: int | None = None,
    ) -> None:
        self.offered = offered
        self.record = record
        self.completions: list[Completion] = []  # of rounds that have ended
        self.reader: ReplyReader | None = None
        self._server = server
        self._model = model
        self._chat = chat
        self._rounds = 0
        self._calls_left = most_calls
        self._deadline = time.monotonic() + server.options.mcp_seconds
        self._generation: Generation | None = None
        self._calling: asyncio.Future[McpResult] | None = None
        self._is_cancelled = False

    @property
    def generation(self) -> Generation:
        """The current round's, or that of the last one."""
        assert self._generation is not None, "the first round has begun"
        return self._generation

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._generation is not None and not self._generation.is_closed:
            self._generation.close()

    def cancel(self) -> None:
        """End the current round or call, because the client is gone."""
        self._is_cancelled = True
        if self._generation is not None:
            self._generation.cancel()
        if self._calling is not None:
            self._calling.cancel()

    async def begin(self, receive: Receive, approved: Sequence[CallRun] = ()) -> list[CallRun]:
        """Run the calls that the client has approved, and begin the first round."""
        runs = [
            replace(run, result=await while_connected(receive, self._run(run))) for run in approved
        ]
        if runs:
            said = _call_message("", [run.call for run in runs])
            messages = [*self._chat.messages, said, *map(_result_message, runs)]
            self._chat = replace(self._chat, messages=messages)
        await self._begin(receive)
        return runs

    async def events(self, *, progress: bool = False) -> AsyncIterator[RoundEvent]:
        """What happens, from the first round to the end of the last."""
        while True:
            parts: list[Event] = []
            async for event in self._said(progress=progress):
                if not isinstance(event, (Piece, Completion)):
                    parts.append(event)
                if isinstance(event, Completion):
                    done = event
                else:
                    yield event
            reply = joined(parts)
            self.completions.append(done)
            self.generation.close()
            yield RoundEnd(done, reply)
            calls = [] if done.is_cut else self._runnable(reply)
            runs: list[CallRun] = []
            for run in calls:
                yield run
                runs.append(replace(run, result=await self._run(run)))
                yield runs[-1]
            if not calls or len(calls) < len(reply.tool_calls):
                return
            self._continue(reply, runs)
            await self._begin(_nothing)

    async def _said(self, *, progress: bool) -> AsyncIterator[Event | Piece | Completion]:
        assert self.reader is not None
        parser = self.reader.parser()
        async for piece in self.generation.pieces(progress=progress):
            if piece.progress is not None:
                yield piece
                continue
            parts = parser.push(piece.text)
            if piece.done is not None:
                parts += parser.finish(cut=piece.done.is_cut)
            for part in self.reader.allowed(parts):
                yield part
            if piece.done is not None:
                yield piece.done

    def _runnable(self, reply: Reply) -> list[CallRun]:
        """The calls of a reply that need no approval."""
        found = [(call, self.offered.get(call.name)) for call in reply.tool_calls]
        return [CallRun(call, tool) for call, tool in found if tool is not None and tool.runs]

    async def _begin(self, receive: Receive) -> None:
        prepared = PreparedChat(self._chat)
        self._generation = await self._server.generations.begin(
            self._server.catalog, self._model, self.record, prepared, receive
        )
        self.reader = prepared.reader
        if self._is_cancelled:
            raise ClientGoneError

    def _continue(self, reply: Reply, runs: Sequence[CallRun]) -> None:
        """Add a round to the conversation; the last one is answered without tools."""
        said = _call_message(reply.content, [run.call for run in runs], reply.reasoning)
        self._rounds += 1
        is_last = (
            self._rounds >= self._server.options.mcp_rounds
            or time.monotonic() > self._deadline
            or self._calls_left == 0
        )
        if is_last:
            self.record.warnings.append(
                f"Tools were called in {self._rounds} rounds. The model answered without calling "
                "more of them, because rounds, calls and their time are limited."
            )
        self._chat = replace(
            self._chat,
            messages=[*self._chat.messages, said, *map(_result_message, runs)],
            tool_choice="none" if is_last else "auto",
        )

    async def _run(self, run: CallRun) -> McpResult:
        """Call a tool; whatever goes wrong there is told to the model."""
        if self._calls_left == 0:
            return failure("the request allows no more tool calls")
        if self._calls_left is not None:
            self._calls_left -= 1
        try:
            arguments = json.loads(run.call.arguments or "{}")
        except ValueError as error:
            return failure(f"the arguments are not valid JSON: {error}")
        if not isinstance(arguments, dict):
            return failure("the arguments must be an object")
        self._calling = asyncio.ensure_future(self._called(run.tool, arguments))
        try:
            return await self._calling
        except asyncio.CancelledError:
            if self._is_cancelled:
                raise ClientGoneError from None
            raise
        finally:
            self._calling = None

    async def _called(self, tool: OfferedTool, arguments: dict[str, Any]) -> McpResult:
        try:
            async with asyncio.timeout(max(self._deadline - time.monotonic(), 0)):
                return await tool.connection.call(tool.tool.name, arguments)
        except TimeoutError:
            return failure("the time for tool calls is over")
        except McpError as error:
            if self._server.stopped:
                raise stopping_error() from None
            return failure(str(error))


def _call_message(content: str, calls: Sequence[ToolCall], reasoning: str = "") -> dict[str, Any]:
    """The model's message with its calls, as chat templates read it."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if reasoning:
        message["reasoning_content"] = reasoning
    message["tool_calls"] = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in calls
    ]
    return message


def _result_message(run: CallRun) -> dict[str, Any]:
    assert run.result is not None
    result = {"role": "tool", "tool_call_id": run.call.id, "name": run.call.name}
    return {**result, "content": run.result.text}


async def _nothing() -> Message:
    """The messages of a client, of which others are told: none."""
    return await asyncio.Future()
