"""`/api/chat`: the next message of a conversation, in Ollama's form."""

from collections import deque
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot.api import LLM
from ingot.reply.events import new_call_id
from ingot.server.body_limits import Few, Many, Name, Tools
from ingot.server.chat import Chat, Message, PreparedChat
from ingot.server.errors import ApiError
from ingot.server.generation import PromptSet, while_connected
from ingot.server.http.access_log import record_of
from ingot.server.http.event_stream import LINES, STREAMED_LINES, EventStream
from ingot.server.http.json_response import JsonResponse
from ingot.server.ollama.options_body import (
    TextBody,
    check_body,
    check_thinking,
    params_of_body,
    thinking_options,
)
from ingot.server.ollama.replies import Counts, LoadClock, Part, Responder, keep_alive, load
from ingot.server.openai.chat_body import Function
from ingot.server.options import RequestOptions
from ingot.server.sampling_body import Body, ParameterGroup
from ingot.server.state import Server


class CalledFunction(Body):
    """A function and its arguments."""

    name: Name
    arguments: dict[str, Any] = Field(default_factory=dict)


class ToolCall(Body):
    """A tool call of the model."""

    id: str | None = None
    function: CalledFunction


class ChatMessage(Body):
    """A message."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    thinking: str | None = None
    images: Few[str] | None = None
    tool_calls: Many[ToolCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class Tool(ParameterGroup):
    """A function that the model may call."""

    type: Literal["function"] = "function"
    function: Function


class ChatBody(TextBody):
    """A conversation, and how to continue it; without messages, the model is only loaded."""

    messages: Many[ChatMessage] | None = None
    tools: Tools[Tool] | None = None


class AnsweredFunction(BaseModel):
    """A function and its arguments."""

    index: int
    name: str
    arguments: dict[str, Any]


class AnsweredCall(BaseModel):
    """A tool call."""

    id: str
    function: AnsweredFunction


class AnswerMessage(BaseModel):
    """The model's message, or a part of it."""

    role: Literal["assistant"] = "assistant"
    content: str
    thinking: str | None = None
    tool_calls: list[AnsweredCall] | None = None


class ChatResponse(Counts):
    """The response to a chat request."""

    model: str
    created_at: str
    message: AnswerMessage


def router(server: Server) -> APIRouter:
    """The endpoint."""
    routes = APIRouter()

    @routes.post("/api/chat", response_model=ChatResponse, responses=STREAMED_LINES)
    async def chat(body: ChatBody, http: HttpRequest) -> Response:
        """Generate the next message of a conversation."""
        record = record_of(http.scope)
        check_body(body, record, server.options)
        keep_alive(server, body)
        if not body.messages:
            return JsonResponse({**await load(server, body, record), **message_of(Part())})
        prepared = PreparedChat(chat_of(body, server.request_options(body.model)))

        def prepare(llm: LLM) -> PromptSet:
            check_thinking(llm, body)
            return prepared(llm)

        clock = LoadClock(record)
        generation = await server.generations.begin(
            server.catalog, body.model, record, clock.around(prepare), http.receive
        )
        responder = Responder(generation, body, prepared.reader, clock, message_of)
        if body.stream is not False:
            return EventStream(generation, responder.lines(), LINES)
        async with generation:
            return JsonResponse(await while_connected(http.receive, responder.whole()))

    return routes


def message_of(part: Part) -> dict[str, object]:
    """The message that a part becomes."""
    message: dict[str, object] = {"role": "assistant", "content": part.content}
    if part.thinking:
        message["thinking"] = part.thinking
    if part.calls:
        message["tool_calls"] = list(part.calls)
    return {"message": message}


def chat_of(body: ChatBody, options: RequestOptions) -> Chat:
    """The chat that a body asks for."""
    return Chat(
        messages=_messages(body.messages or []),
        params=params_of_body(body, options),
        tools=[tool.model_dump(exclude_none=True) for tool in body.tools or ()],
        separates_reasoning=options.separates_reasoning,
        priority=body.priority,
        speculation=body.speculation,
        template_options=thinking_options(body.think),
    )


def _messages(messages: list[ChatMessage]) -> list[Message]:
    """The messages as chat templates read them; results get the ids of their calls."""
    made: list[Message] = []
    unanswered: deque[tuple[str, str]] = deque()  # ids and names of calls without a result
    for number, message in enumerate(messages):
        if message.images:
            raise ApiError(
                400,
                f"messages[{number}] has images; only text is supported",
                param=f"messages[{number}].images",
            )
        result: Message = {"role": message.role, "content": message.content or ""}
        if message.thinking:
            result["reasoning_content"] = message.thinking
        if message.tool_calls:
            result["tool_calls"] = [_call(call) for call in message.tool_calls]
            unanswered = deque(
                (call["id"], call["function"]["name"]) for call in result["tool_calls"]
            )
        if message.role == "tool":
            result |= _answered(message, unanswered)
        made.append(result)
    return made


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": call.function.arguments}
    return {"id": call.id or new_call_id(), "type": "function", "function": function}


def _answered(message: ChatMessage, unanswered: deque[tuple[str, str]]) -> Message:
    """The id and the name of the call that a result belongs to: by id, by name, or the next."""
    for wanted in (message.tool_call_id, message.tool_name):
        for call in unanswered:
            if wanted is not None and wanted in call:
                unanswered.remove(call)
                return {"tool_call_id": call[0], "name": call[1]}
    id, name = unanswered.popleft() if unanswered else ("", "")
    found = {"tool_call_id": message.tool_call_id or id, "name": message.tool_name or name}
    return {key: value for key, value in found.items() if value}
