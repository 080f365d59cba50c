"""`/v1/chat/completions` with tools of MCP servers: an answer after several rounds.

Calls that the server runs are in `mcp_calls` of the message, with their results; a client that
sends the message back sends them, too. Calls that need approval are ordinary tool calls, whose
`mcp` says which tool of which server they name.
"""

from collections.abc import AsyncIterator
from typing import Any, Literal

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot.errors import IngotError
from ingot.reply import Content, Event, Reasoning, ToolCall, ToolCallArguments, ToolCallBegin
from ingot.server.errors import ApiError
from ingot.server.generation import Piece, while_connected
from ingot.server.http.access_log import record_of
from ingot.server.http.event_stream import DONE, EventStream, event
from ingot.server.http.json_response import JsonResponse
from ingot.server.mcp.rounds import CallRun, RoundEnd, ToolRounds
from ingot.server.openai.chat_body import ChatBody, chat_of
from ingot.server.openai.mcp_body import functions, offered_tools
from ingot.server.openai.shared import FINGERPRINT, error_events, new_id, now, usage_of
from ingot.server.state import Server
from ingot.server.timings import progress_of, timings_of


async def chat_with_mcp(server: Server, body: ChatBody, http: HttpRequest) -> Response:
    """Generate the next message of a conversation, and run tools of MCP servers."""
    if (body.n or 1) > 1 or body.wants_logprobs:
        name = "logprobs" if body.wants_logprobs else "n"
        raise ApiError(400, f"{name} cannot be combined with tools of type mcp", param=name)
    names = [tool.function.name for tool in functions(body.tools, {})]
    offered = await offered_tools(server, body.tools, names)
    chat = chat_of(body, server.request_options(body.model), offered)
    rounds = ToolRounds(
        server, body.model, record_of(http.scope), chat, offered, most_calls=body.max_tool_calls
    )
    await rounds.begin(http.receive)
    responder = McpChatResponder(rounds, body)
    if body.stream:
        return EventStream(rounds, responder.events())
    async with rounds:
        return JsonResponse(await while_connected(http.receive, responder.whole()))


class McpChatResponder:
    """Makes the response to one request from its rounds."""

    def __init__(self, rounds: ToolRounds, body: ChatBody) -> None:
        self._rounds = rounds
        self._body = body
        self._head: dict[str, Any] = {
            "id": new_id("chatcmpl-"),
            "object": "chat.completion.chunk",
            "created": now(),
            "model": rounds.generation.model,
            "system_fingerprint": FINGERPRINT,
        }
        self._message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
        self._calls = 0  # of this round, for the client
        self._open: int | None = None  # the number of the call whose arguments are being written
        self._said = False  # something in this round

    async def whole(self) -> dict[str, Any]:
        """The response, once all rounds are done."""
        async for delta in self._deltas():
            self._add(delta)
        choice = {
            "index": 0,
            "message": self._message,
            "logprobs": None,
            "finish_reason": self._finish_reason,
        }
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": self._usage,
            **self._end,
        }

    async def events(self) -> AsyncIterator[bytes]:
        """The response as a stream of chunks."""
        try:
            yield self._chunk({"role": "assistant", "content": None})
            async for delta in self._deltas():
                yield self._chunk(delta)
            yield self._chunk({}, self._finish_reason, **self._end)
            if self._body.includes_usage:
                yield event({**self._head, "choices": [], "usage": self._usage})
            yield DONE
        except (ApiError, IngotError) as error:
            yield error_events(error)

    async def _deltas(self) -> AsyncIterator[dict[str, Any]]:
        """What each event adds to the message; progress of a prompt has a name of its own."""
        has_content = False
        async for part in self._rounds.events(progress=bool(self._body.return_progress)):
            match part:
                case Piece():
                    yield {"prompt_progress": self._progress(part)}
                case CallRun():
                    yield {"mcp_calls": [_call_object(part)]}
                case RoundEnd():
                    self._said = False
                case Content(text):
                    gap = "\n\n" if has_content and not self._said else ""
                    has_content = self._said = True
                    yield {"content": gap + text}
                case _:
                    if delta := self._delta(part):
                        yield delta

    def _delta(self, part: Event) -> dict[str, Any]:
        match part:
            case Reasoning(text):
                return {"reasoning_content": text}
            case ToolCallBegin(_, id, name):
                tool = self._rounds.offered.get(name)
                self._open = None
                if tool is not None and tool.runs:
                    return {}
                self._open = self._calls
                self._calls += 1
                call: dict[str, Any] = {"index": self._open, "id": id, "type": "function"}
                call["function"] = {"name": name, "arguments": ""}
                if tool is not None:
                    call["mcp"] = {"server": tool.connection.name, "tool": tool.tool.name}
                return {"tool_calls": [call]}
            case ToolCallArguments(_, text) if self._open is not None:
                return {"tool_calls": [{"index": self._open, "function": {"arguments": text}}]}
            case _:
                return {}

    def _progress(self, piece: Piece) -> dict[str, Any]:
        assert piece.progress is not None
        generation = self._rounds.generation
        timings = generation.requests[0].timings
        return progress_of(piece.progress, timings, generation.seconds).model_dump()

    def _add(self, delta: dict[str, Any]) -> None:
        """Add a delta to the message."""
        for name in ("content", "reasoning_content"):
            if name in delta:
                self._message[name] = (self._message.get(name) or "") + delta[name]
        for call in delta.get("mcp_calls", ()):
            calls = self._message.setdefault("mcp_calls", [])
            if call["status"] != "in_progress":
                calls.append(call)
        for call in delta.get("tool_calls", ()):
            calls = self._message.setdefault("tool_calls", [])
            if "id" in call:
                calls.append({name: value for name, value in call.items() if name != "index"})
            else:
                calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]

    @property
    def _finish_reason(self) -> Literal["stop", "length", "tool_calls"]:
        if self._rounds.completions[-1].is_cut:
            return "length"
        return "tool_calls" if self._calls else "stop"

    @property
    def _usage(self) -> dict[str, Any]:
        """The tokens of all rounds."""
        done = self._rounds.completions
        return usage_of(done, len(done)).model_dump()

    @property
    def _end(self) -> dict[str, Any]:
        """What the end of the response says besides."""
        timings = timings_of(self._rounds.completions[-1].timings).model_dump()
        warnings = self._rounds.record.warnings
        return {"timings": timings, **({"warnings": warnings} if warnings else {})}

    def _chunk(self, delta: dict[str, Any], reason: str | None = None, **more: object) -> bytes:
        if "prompt_progress" in delta:
            more["prompt_progress"] = delta.pop("prompt_progress")
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        if self._body.includes_usage:
            more["usage"] = None
        if self._body.timings_per_token and delta.get("content"):
            more["timings"] = timings_of(self._rounds.generation.requests[0].timings).model_dump()
        return event({**self._head, "choices": [choice], **more})


def _call_object(run: CallRun) -> dict[str, Any]:
    """A call that the server runs, and its result when there is one."""
    call: ToolCall = run.call
    told: dict[str, Any] = {
        "id": call.id,
        "server_label": run.tool.connection.name,
        "name": run.tool.tool.name,
        "arguments": call.arguments,
        "status": "in_progress",
    }
    if run.result is None:
        return told
    if run.result.is_error:
        return {**told, "status": "failed", "output": None, "error": run.result.text}
    return {**told, "status": "completed", "output": run.result.text, "error": None}
