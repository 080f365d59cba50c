"""The answers of `/v1/messages`: a message of blocks, whole or as a stream of events."""

import uuid
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_core import from_json

from ingot.engine import Completion, Timings
from ingot.errors import IngotError
from ingot.reply import Content, Event, Reasoning, ToolCallArguments, ToolCallBegin
from ingot.reply.events import merged
from ingot.server.chatting import Reading
from ingot.server.errors import ApiError, anthropic_error, facts_of
from ingot.server.sse import event
from ingot.server.writing import Writing

StopReason = Literal[
    "end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"
]


class TextBlock(BaseModel):
    """A part of the answer."""

    type: Literal["text"] = "text"
    text: str


class ThinkingBlock(BaseModel):
    """What the model thought; nothing is signed here."""

    type: Literal["thinking"] = "thinking"
    thinking: str
    signature: str = ""


class ToolUseBlock(BaseModel):
    """A call of a tool."""

    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: dict[str, Any]


class Usage(BaseModel):
    """Tokens read and written; those found in the cache are counted apart."""

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int


class MessageAnswer(BaseModel):
    """What the model says."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[TextBlock | ThinkingBlock | ToolUseBlock]
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    usage: Usage


class MessageAnswers:
    """Makes the answer of one call."""

    def __init__(self, writing: Writing, reading: Reading) -> None:
        self._writing = writing
        self._reading = reading
        self._parser = reading.parser()
        self._id = f"msg_{uuid.uuid4().hex}"

    async def whole(self) -> dict[str, Any]:
        """The answer, once it is there."""
        (done,) = await self._writing.results()
        events = merged([*self._parser.push(done.text), *self._parser.finish()])
        content = list(_blocks(self._reading.wanted(events)))
        reason, stop = self._ended(done)
        return self._message(content, _usage(done.timings), reason, stop)

    async def events(self) -> AsyncIterator[bytes]:
        """The answer as it comes."""
        blocks = _StreamedBlocks()
        (request,) = self._writing.requests
        begun = Usage(input_tokens=request.timings.prompt_tokens, output_tokens=0)
        try:
            yield _event("message_start", message=self._message([], begun))
            yield _event("ping")
            async for piece in self._writing.pieces():
                said = self._parser.push(piece.text)
                if piece.done is not None:
                    said += self._parser.finish()
                if made := b"".join(map(blocks.of, self._reading.wanted(said))):
                    yield made
                if piece.done is not None:
                    reason, stop = self._ended(piece.done)
                    usage = _usage(piece.done.timings).model_dump()
                    delta = {"stop_reason": reason, "stop_sequence": stop}
                    yield blocks.close() + _event("message_delta", delta=delta, usage=usage)
            yield _event("message_stop")
        except (ApiError, IngotError) as error:
            yield event(anthropic_error(facts_of(error)), "error")

    def _message(
        self,
        content: list[TextBlock | ThinkingBlock | ToolUseBlock],
        usage: Usage,
        reason: StopReason | None = None,
        stop: str | None = None,
    ) -> dict[str, Any]:
        return MessageAnswer(
            id=self._id,
            model=self._writing.model,
            content=content,
            stop_reason=reason,
            stop_sequence=stop,
            usage=usage,
        ).model_dump()

    def _ended(self, done: Completion) -> tuple[StopReason, str | None]:
        """Why the answer ended, and the stop sequence if it was one."""
        match done.finish_reason:
            case "context":
                return "model_context_window_exceeded", None
            case "length" | "time":
                return "max_tokens", None
        if isinstance(done.stopped_by, str):
            return "stop_sequence", done.stopped_by
        return ("tool_use" if self._parser.tool_calls else "end_turn"), None


class _StreamedBlocks:
    """Writes blocks as events: each begins where a text of another kind comes."""

    def __init__(self) -> None:
        self._index = -1
        self._open: type[Event] | None = None

    def of(self, said: Event) -> bytes:
        """The events that something said makes."""
        match said:
            case Content(text):
                begun = self._begun(Content, {"type": "text", "text": ""})
                return begun + self._delta("text_delta", text=text)
            case Reasoning(text):
                begun = self._begun(
                    Reasoning, {"type": "thinking", "thinking": "", "signature": ""}
                )
                return begun + self._delta("thinking_delta", thinking=text)
            case ToolCallBegin(_, id, name):
                block = {"type": "tool_use", "id": id, "name": name, "input": {}}
                return self.close() + self._begun(ToolCallBegin, block)
            case ToolCallArguments(_, text):
                return self._delta("input_json_delta", partial_json=text)

    def close(self) -> bytes:
        """The end of the block that is open, if one is."""
        if self._open is None:
            return b""
        self._open = None
        return _event("content_block_stop", index=self._index)

    def _begun(self, kind: type[Event], block: dict[str, Any]) -> bytes:
        if self._open is kind:
            return b""
        closed = self.close()
        self._open = kind
        self._index += 1
        return closed + _event("content_block_start", index=self._index, content_block=block)

    def _delta(self, kind: str, **fields: str) -> bytes:
        delta = {"type": kind, **fields}
        return _event("content_block_delta", index=self._index, delta=delta)


def _blocks(events: Iterable[Event]) -> Iterator[TextBlock | ThinkingBlock | ToolUseBlock]:
    """The blocks of a whole answer."""
    begun: ToolCallBegin | None = None
    for said in events:
        if begun is not None and not isinstance(said, ToolCallArguments):
            yield ToolUseBlock(id=begun.id, name=begun.name, input={})
            begun = None
        match said:
            case Content(text):
                yield TextBlock(text=text)
            case Reasoning(text):
                yield ThinkingBlock(thinking=text)
            case ToolCallBegin():
                begun = said
            case ToolCallArguments(_, text) if begun is not None:
                yield ToolUseBlock(id=begun.id, name=begun.name, input=_arguments(text))
                begun = None


def _arguments(text: str) -> dict[str, Any]:
    """The arguments of a call: those that were cut as far as they go, none that nobody can read."""
    given: dict[str, Any] = {}
    with suppress(ValueError):
        given = from_json(text, allow_partial="trailing-strings")
    return given


def _usage(timings: Timings) -> Usage:
    return Usage(
        input_tokens=timings.prompt_tokens - timings.reused_tokens,
        cache_read_input_tokens=timings.reused_tokens,
        output_tokens=timings.generated_tokens,
    )


def _event(kind: str, **fields: Any) -> bytes:
    return event({"type": kind, **fields}, kind)
