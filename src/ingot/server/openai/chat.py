"""`/v1/chat/completions`: the endpoint and its responses, whole and as a stream of chunks.

The completions of a chat come in, OpenAI's objects go out. Most chunks hold only text, so they are
put together from parts that are made once.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot.engine import Completion, Request
from ingot.errors import IngotError
from ingot.reply import Content, Event, Reasoning, ReplyParser, ToolCallArguments, ToolCallBegin
from ingot.reply.events import joined
from ingot.server.chat import PreparedChat, ReplyReader, for_counting
from ingot.server.errors import ApiError
from ingot.server.generation import Generation, Piece, while_connected
from ingot.server.http.access_log import record_of
from ingot.server.http.event_stream import DONE, STREAMED, EventStream, event
from ingot.server.http.json_response import JsonResponse, LongJsonResponse, dumps
from ingot.server.openai.chat_body import ChatBody, chat_of
from ingot.server.openai.logprobs import TokenLogprob, token_logprobs
from ingot.server.openai.mcp_body import McpTools, asks_for_mcp, offered_tools
from ingot.server.openai.mcp_chat import chat_with_mcp
from ingot.server.openai.shared import (
    ERRORS,
    FINGERPRINT,
    InputTokens,
    Usage,
    count_tokens,
    error_events,
    finish_reason,
    new_id,
    now,
    usage_of,
)
from ingot.server.parameters import check_parameters
from ingot.server.state import Server
from ingot.server.timings import CompletionTimings, progress_of, timings_of

ChatFinishReason = Literal["stop", "length", "tool_calls"]


class FunctionCall(BaseModel):
    """A function and its arguments, which are JSON as text."""

    name: str
    arguments: str


class ToolCallObject(BaseModel):
    """A tool call."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class AssistantMessage(BaseModel):
    """The model's message."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallObject] | None = None


class ChoiceLogprobs(BaseModel):
    """The logprobs of all tokens, including reasoning and tool calls."""

    content: list[TokenLogprob]
    refusal: None = None


class ChatChoice(BaseModel):
    """One completion."""

    index: int
    message: AssistantMessage
    logprobs: ChoiceLogprobs | None = None
    finish_reason: ChatFinishReason


class ChatCompletion(BaseModel):
    """The response to a chat request."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: str = FINGERPRINT
    choices: list[ChatChoice]
    usage: Usage
    timings: CompletionTimings  # of the first completion
    warnings: list[str] | None = None  # about parameters that were ignored


def router(server: Server) -> APIRouter:
    """The endpoint."""
    routes = APIRouter(responses=ERRORS)

    @routes.post("/v1/chat/completions", response_model=ChatCompletion, responses=STREAMED)
    @routes.post("/chat/completions", include_in_schema=False)
    async def chat(body: ChatBody, http: HttpRequest) -> Response:
        """Generate the next message of a conversation."""
        check_parameters(body, record_of(http.scope), server.options)
        if asks_for_mcp(body.tools):
            return await chat_with_mcp(server, body, http)
        prepared = PreparedChat(chat_of(body, server.request_options(body.model)))
        generation = await server.generations.begin(
            server.catalog, body.model, record_of(http.scope), prepared, http.receive
        )
        responder = ChatResponder(generation, body, prepared.reader)
        if body.stream:
            return EventStream(generation, responder.events())
        async with generation:
            completion = await while_connected(http.receive, responder.whole())
        return LongJsonResponse(completion) if body.wants_logprobs else JsonResponse(completion)

    @routes.post("/v1/chat/completions/input_tokens", response_model_exclude_none=True)
    @routes.post(
        "/chat/completions/input_tokens", include_in_schema=False, response_model_exclude_none=True
    )
    async def input_tokens(body: ChatBody, http: HttpRequest) -> InputTokens:
        """Count the tokens of a conversation."""
        record = record_of(http.scope)
        check_parameters(body, record, server.options)
        own = [tool.function.name for tool in body.tools or () if not isinstance(tool, McpTools)]
        offered = await offered_tools(server, body.tools, own)
        chat = chat_of(body, for_counting(server.request_options(body.model)), offered)
        return await count_tokens(server, body.model, chat, record)

    return routes


class ChatResponder:
    """Makes the response to one request."""

    def __init__(self, generation: Generation, body: ChatBody, reader: ReplyReader) -> None:
        self._generation = generation
        self._body = body
        self.reader = reader
        self._id = new_id("chatcmpl-")
        self._created = now()

    async def whole(self) -> dict[str, object]:
        """The response, once all completions are done; logprobs are iterators."""
        completions = await self._generation.results()
        response = ChatCompletion(
            id=self._id,
            created=self._created,
            model=self._generation.model,
            choices=[self._choice(index, each) for index, each in enumerate(completions)],
            usage=usage_of(completions),
            timings=timings_of(completions[0].timings),
            warnings=self._generation.warnings,
        ).model_dump()
        if response["warnings"] is None:
            del response["warnings"]
        for choice, completion in zip(response["choices"], completions, strict=True):
            for name in ("reasoning_content", "tool_calls"):  # present only if they have a value
                if choice["message"][name] is None:
                    del choice["message"][name]
            if self._body.wants_logprobs:
                content = token_logprobs(self._generation.llm.tokenizer, completion.logprobs)
                choice["logprobs"] = {"content": content, "refusal": None}
        if self._body.wants_logprobs:
            response["choices"] = iter(response["choices"])
        return response

    def _choice(self, index: int, completion: Completion) -> ChatChoice:
        parser = self.reader.parser()
        events = [*parser.push(completion.text), *parser.finish(cut=completion.is_cut)]
        reply = joined(self.reader.allowed(events))
        calls = [
            ToolCallObject(
                id=call.id, function=FunctionCall(name=call.name, arguments=call.arguments)
            )
            for call in reply.tool_calls
        ]
        return ChatChoice(
            index=index,
            message=AssistantMessage(
                content=reply.content if reply.content or not calls else None,
                reasoning_content=reply.reasoning or None,
                tool_calls=calls or None,
            ),
            finish_reason=_chat_finish_reason(completion, parser),
        )

    async def events(self) -> AsyncIterator[bytes]:
        """The response as a stream of chunks."""
        choices = [
            _StreamedChoice(self, index, request, self.reader.parser())
            for index, request in enumerate(self._generation.requests)
        ]
        try:
            for choice in choices:
                yield choice.begin()
            completions: dict[int, Completion] = {}
            async for piece in self._generation.pieces(progress=bool(self._body.return_progress)):
                choice = choices[piece.index]
                if piece.progress is not None:
                    yield self._progress_event(piece)
                elif chunks := choice.push(piece.text):
                    yield chunks
                if piece.done is not None:
                    completions[piece.index] = piece.done
                    yield choice.end(piece.done)
            if self._body.includes_usage:
                usage = usage_of([completions[index] for index in range(len(completions))])
                yield event({**self.head, "choices": [], "usage": usage.model_dump()})
            yield DONE
        except (ApiError, IngotError) as error:
            yield error_events(error)

    def _progress_event(self, piece: Piece) -> bytes:
        assert piece.progress is not None
        timings = self._generation.requests[piece.index].timings
        progress = progress_of(piece.progress, timings, self._generation.seconds)
        choice = {"index": piece.index, "delta": {}, "logprobs": None, "finish_reason": None}
        content = {"choices": [choice], "prompt_progress": progress.model_dump()}
        return event({**self.head, **content, **({"usage": None} if self.includes_usage else {})})

    @property
    def head(self) -> dict[str, object]:
        """The fields that all chunks begin with."""
        return {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._generation.model,
            "system_fingerprint": FINGERPRINT,
        }

    @property
    def warnings(self) -> list[str] | None:
        """What the client should know about its request."""
        return self._generation.warnings

    @property
    def includes_usage(self) -> bool:
        """Whether chunks have a `usage`, which is null in all but the last."""
        return self._body.includes_usage

    @property
    def times_tokens(self) -> bool:
        """Whether every chunk has timings, not only the last."""
        return bool(self._body.timings_per_token)

    def logprobs_of(self, request: Request, sent: int) -> list[dict[str, object]]:
        """The logprobs of tokens after the first `sent`, if the client wants logprobs."""
        if not self._body.wants_logprobs:
            return []
        return list(token_logprobs(self._generation.llm.tokenizer, request.logprobs[sent:]))


def _chat_finish_reason(done: Completion, parser: ReplyParser) -> ChatFinishReason:
    """Why a reply ended; a text that was cut off says so, even if it has tool calls."""
    reason = finish_reason(done.finish_reason)
    return "tool_calls" if reason == "stop" and parser.called else reason


class _StreamedChoice:
    """Writes the chunks of one completion."""

    def __init__(
        self, responder: ChatResponder, index: int, request: Request, parser: ReplyParser
    ) -> None:
        self._responder = responder
        self._index = index
        self._request = request
        self._parser = parser
        self._sent = 0  # tokens whose logprobs were sent
        head = dumps(responder.head)[:-1]
        # A chunk that holds only text, before and after that text.
        self._before = f'data: {head},"choices":[{{"index":{index},"delta":{{"content":'
        usage = ',"usage":null' if responder.includes_usage else ""
        self._after = f'}},"logprobs":null,"finish_reason":null}}]{usage}}}\n\n'

    def begin(self) -> bytes:
        """The first chunk, which has the role."""
        return self._chunk({"role": "assistant", "content": None}, is_first=True)

    def push(self, text: str) -> bytes:
        """The chunks of a piece of text; perhaps none yet."""
        return self._chunks(self._parser.push(text))

    def end(self, done: Completion) -> bytes:
        """The last chunks, with the finish reason."""
        rest = self._chunks(self._parser.finish(cut=done.is_cut))
        return rest + self._chunk({}, _chat_finish_reason(done, self._parser))

    def _chunks(self, events: Sequence[Event]) -> bytes:
        return b"".join(map(self._chunk_of, self._responder.reader.allowed(events)))

    def _chunk_of(self, part: Event) -> bytes:
        logprobs = self._responder.logprobs_of(self._request, self._sent)
        self._sent += len(logprobs)
        match part:
            case Content(text) if not logprobs and not self._responder.times_tokens:
                return f"{self._before}{dumps(text)}{self._after}".encode()
            case Content(text):
                delta: dict[str, object] = {"content": text}
            case Reasoning(text):
                delta = {"reasoning_content": text}
            case ToolCallBegin(index, id, name):
                call = {"index": index, "id": id, "type": "function"}
                delta = {"tool_calls": [{**call, "function": {"name": name, "arguments": ""}}]}
            case ToolCallArguments(index, text):
                delta = {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
        return self._chunk(delta, logprobs=logprobs)

    def _chunk(
        self,
        delta: dict[str, object],
        reason: ChatFinishReason | None = None,
        logprobs: Sequence[dict[str, object]] = (),
        *,
        is_first: bool = False,
    ) -> bytes:
        if reason is not None:
            logprobs = self._responder.logprobs_of(self._request, self._sent)
        choice = {
            "index": self._index,
            "delta": delta,
            "logprobs": {"content": logprobs, "refusal": None} if logprobs else None,
            "finish_reason": reason,
        }
        more: dict[str, object] = {"usage": None} if self._responder.includes_usage else {}
        if is_first and self._responder.warnings:
            more["warnings"] = self._responder.warnings
        if reason is not None or (self._responder.times_tokens and not is_first):
            more["timings"] = timings_of(self._request.timings).model_dump()
        return event({**self._responder.head, "choices": [choice], **more})
