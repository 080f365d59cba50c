"""`/v1/messages`: the endpoints and their responses, whole and as a stream of events."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel
from pydantic_core import from_json
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot.engine import Completion, Timings
from ingot.errors import IngotError
from ingot.reply import Content, Event, Reasoning, ToolCallArguments, ToolCallBegin
from ingot.reply.events import merged
from ingot.reply.json_reader import is_value
from ingot.server.anthropic.messages_body import CountBody, MessagesBody, chat_of
from ingot.server.anthropic.threads import ThreadStore
from ingot.server.chat import PreparedChat, ReplyReader, for_counting, prepare
from ingot.server.error_bodies import AnthropicError, anthropic_error, error_responses
from ingot.server.errors import ApiError, error_info
from ingot.server.generation import Generation, while_connected
from ingot.server.http.access_log import record_of
from ingot.server.http.event_stream import STREAMED, EventStream, event
from ingot.server.http.json_response import JsonResponse
from ingot.server.openai.shared import new_id
from ingot.server.parameters import check_parameters
from ingot.server.state import Server
from ingot.server.threads import run_in_thread

StopReason = Literal[
    "end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"
]


class TextBlock(BaseModel):
    """Text of the answer."""

    type: Literal["text"] = "text"
    text: str


class ThinkingBlock(BaseModel):
    """Reasoning; its signature is empty."""

    type: Literal["thinking"] = "thinking"
    thinking: str
    signature: str = ""


class ToolUseBlock(BaseModel):
    """A tool call."""

    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: dict[str, Any]


ContentBlock = TextBlock | ThinkingBlock | ToolUseBlock
Keep = Callable[[str, list[dict[str, Any]]], None]


class Usage(BaseModel):
    """Prompt tokens, those found in the prefix cache apart, and generated tokens."""

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int


class MessageResponse(BaseModel):
    """The model's message."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[ContentBlock]
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    usage: Usage
    warnings: list[str] | None = None  # about parameters that were ignored


class MessageResponder:
    """Makes the response to one request."""

    def __init__(self, generation: Generation, reader: ReplyReader, keep: Keep) -> None:
        """`keep` gets the id and the content of the message when it is complete."""
        self._generation = generation
        self._keep = keep
        self._reader = reader
        self._parser = reader.parser()
        self._id = new_id("msg_")

    async def whole(self) -> dict[str, object]:
        """The response, once the completion is done."""
        (done,) = await self._generation.results()
        parts = [*self._parser.push(done.text), *self._parser.finish(cut=done.is_cut)]
        content = self._kept(self._reader.allowed(parts))
        reason, stop = self._ended(done)
        return self._message(content, _usage(done.timings), reason, stop)

    async def events(self) -> AsyncIterator[bytes]:
        """The response as a stream of events."""
        blocks = _StreamedBlocks()
        said: list[Event] = []
        (request,) = self._generation.requests
        prompt_usage = Usage(input_tokens=request.timings.prompt_tokens, output_tokens=0)
        try:
            yield _event("message_start", message=self._message([], prompt_usage))
            yield _event("ping")
            async for piece in self._generation.pieces():
                parts = self._parser.push(piece.text)
                if piece.done is not None:
                    parts += self._parser.finish(cut=piece.done.is_cut)
                parts = self._reader.allowed(parts)
                said += parts
                if sent := b"".join(map(blocks.events_of, parts)):
                    yield sent
                if piece.done is not None:
                    self._kept(said)
                    reason, stop = self._ended(piece.done)
                    usage = _usage(piece.done.timings).model_dump()
                    delta = {"stop_reason": reason, "stop_sequence": stop}
                    yield blocks.close() + _event("message_delta", delta=delta, usage=usage)
            yield _event("message_stop")
        except (ApiError, IngotError) as error:
            yield event(anthropic_error(error_info(error)), "error")

    def _kept(self, events: list[Event]) -> list[ContentBlock]:
        """The blocks of a whole completion, which the thread gets, too."""
        content = list(_blocks(merged(events)))
        self._keep(self._id, [block.model_dump() for block in content])
        return content

    def _message(
        self,
        content: list[ContentBlock],
        usage: Usage,
        reason: StopReason | None = None,
        stop: str | None = None,
    ) -> dict[str, object]:
        message = MessageResponse(
            id=self._id,
            model=self._generation.model,
            content=content,
            stop_reason=reason,
            stop_sequence=stop,
            usage=usage,
            warnings=self._generation.warnings,
        )
        return message.model_dump(exclude=set() if message.warnings else {"warnings"})

    def _ended(self, done: Completion) -> tuple[StopReason, str | None]:
        """The stop reason, and the stop sequence if there was one."""
        match done.finish_reason:
            case "context":
                return "model_context_window_exceeded", None
            case "length" | "time":
                return "max_tokens", None
        if isinstance(done.stopped_by, str):
            return "stop_sequence", done.stopped_by
        return ("tool_use" if self._parser.called else "end_turn"), None


class _StreamedBlocks:
    """Writes blocks as events; a block begins when the kind of content changes."""

    def __init__(self) -> None:
        self._index = -1
        self._open: type[Event] | None = None

    def events_of(self, part: Event) -> bytes:
        """The events of a part of the reply."""
        match part:
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
        """The end of the open block, if there is one."""
        if self._open is None:
            return b""
        self._open = None
        return _event("content_block_stop", index=self._index)

    def _begun(self, kind: type[Event], block: Mapping[str, object]) -> bytes:
        if self._open is kind:
            return b""
        closed = self.close()
        self._open = kind
        self._index += 1
        return closed + _event("content_block_start", index=self._index, content_block=block)

    def _delta(self, kind: str, **fields: str) -> bytes:
        delta = {"type": kind, **fields}
        return _event("content_block_delta", index=self._index, delta=delta)


def _blocks(events: Iterable[Event]) -> Iterator[ContentBlock]:
    """The blocks of a whole reply, without tool calls whose arguments are not complete."""
    begun: ToolCallBegin | None = None
    for part in events:
        match part:
            case Content(text):
                yield TextBlock(text=text)
            case Reasoning(text):
                yield ThinkingBlock(thinking=text)
            case ToolCallBegin():
                begun = part
            case ToolCallArguments(_, text) if begun is not None and is_value(text):
                yield ToolUseBlock(id=begun.id, name=begun.name, input=_arguments(text))


def _arguments(text: str) -> dict[str, object]:
    """The arguments of a tool call; {} if they are nested too deeply or are not valid Unicode."""
    given: dict[str, Any] = {}
    with suppress(ValueError):
        given = from_json(text)
    return given


def _usage(timings: Timings) -> Usage:
    return Usage(
        input_tokens=timings.prompt_tokens - timings.reused_tokens,
        cache_read_input_tokens=timings.reused_tokens,
        output_tokens=timings.generated_tokens,
    )


def _event(kind: str, **fields: object) -> bytes:
    return event({"type": kind, **fields}, kind)


class TokenCount(BaseModel):
    """The number of tokens of a conversation."""

    input_tokens: int
    warnings: list[str] | None = None  # about parameters that were ignored


def router(server: Server) -> APIRouter:
    """The endpoints."""
    routes = APIRouter(tags=["Anthropic"], responses=error_responses(AnthropicError))
    threads = ThreadStore()

    @routes.post("/v1/messages", response_model=MessageResponse, responses=STREAMED)
    async def messages(body: MessagesBody, http: HttpRequest) -> Response:
        """Generate the next message of a conversation."""
        check_parameters(body, record_of(http.scope), server.options)
        body = threads.continued(body)
        prepared = PreparedChat(chat_of(body, server.request_options(body.model)))
        generation = await server.generations.begin(
            server.catalog, body.model, record_of(http.scope), prepared, http.receive
        )
        responder = MessageResponder(generation, prepared.reader, partial(threads.hold, body))
        if body.stream:
            return EventStream(generation, responder.events())
        async with generation:
            return JsonResponse(await while_connected(http.receive, responder.whole()))

    @routes.post("/v1/messages/count_tokens", response_model_exclude_none=True)
    async def count_tokens(body: CountBody, http: HttpRequest) -> TokenCount:
        """Count the tokens of a conversation."""
        record = record_of(http.scope)
        check_parameters(body, record, server.options)
        body = threads.continued(body)
        chat = chat_of(body, for_counting(server.request_options(body.model)))
        with await server.catalog.lease(body.model) as lease:
            ids, _ = await run_in_thread(prepare, lease.llm, chat)
        return TokenCount(input_tokens=len(ids), warnings=record.warnings or None)

    return routes
