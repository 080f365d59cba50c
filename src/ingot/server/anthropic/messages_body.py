"""The bodies of `/v1/messages` and `count_tokens`: content blocks, tools, and their `Chat`.

Messages of content blocks become messages whose content is text, with tool calls and their results
beside it, as chat templates read them. Consecutive messages of one role become one.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import Field

from ingot.reply import ToolChoice
from ingot.server.body_limits import MAX_NAME_LENGTH, Few, Many, Tools
from ingot.server.chat import Chat, Message, named_tool
from ingot.server.errors import ApiError
from ingot.server.options import RequestOptions
from ingot.server.sampling_body import Body, ParameterGroup, StopSequence, params_of
from ingot.server.template_body import (
    TemplateBody,
    ThinkingBody,
    separates_reasoning,
    template_options,
)


class SystemBlock(Body):
    """A part of the system prompt."""

    type: Literal["text"]
    text: str


class Block(Body):
    """A content block of a message. Its type decides which fields it must have."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: "str | Many[Block] | None" = None
    is_error: bool | None = None


class MessageBody(Body):
    """A message."""

    role: Literal["user", "assistant", "system"]
    content: str | Many[Block]


def template_messages(
    messages: list[MessageBody], system: str | list[SystemBlock] | None
) -> list[Message]:
    """The conversation as chat templates read it."""
    turns: list[list[Message]] = []  # consecutive messages of one role
    if system:
        text = system if isinstance(system, str) else "\n".join(block.text for block in system)
        turns.append([{"role": "system", "content": text}])
    names: dict[str, str] = {}  # tool names by the ids of their calls
    for number, message in enumerate(messages):
        for part in _parts(f"messages[{number}]", message, names):
            if turns and turns[-1][0]["role"] == part["role"] != "tool":
                turns[-1].append(part)
            else:
                turns.append([part])
    return [_joined(turn) for turn in turns]


def _parts(where: str, message: MessageBody, names: dict[str, str]) -> list[Message]:
    """The messages of one message: tool results are separate and come first."""
    if isinstance(message.content, str):
        return [{"role": message.role, "content": message.content}]
    results: list[Message] = []
    texts: list[str] = []
    reasoning: list[str] = []
    calls: list[dict[str, object]] = []
    for block in message.content:
        match block.type, message.role:
            case "text", _:
                texts.append(_needed(block.text, where, "text"))
            case "tool_result", "user":
                results.append(_result(where, block, names))
            case "thinking", "assistant":
                reasoning.append(_needed(block.thinking, where, "thinking"))
            case "redacted_thinking", "assistant":
                pass  # it is encrypted
            case "tool_use", "assistant":
                calls.append(_call(where, block, names))
            case kind, role:
                raise ApiError(
                    400, f"{where}: {kind!r:.60} blocks are not supported in {role} messages"
                )
    rest: Message = {"role": message.role, "content": "\n".join(texts)}
    if reasoning:
        rest["reasoning_content"] = "\n".join(reasoning)
    if calls:
        rest["tool_calls"] = calls
    return [*results, *([rest] if texts or reasoning or calls or not results else [])]


def _call(where: str, block: Block, names: dict[str, str]) -> dict[str, object]:
    name, id = _needed(block.name, where, "name"), _needed(block.id, where, "id")
    names[id] = name
    return {
        "id": id,
        "type": "function",
        "function": {"name": name, "arguments": block.input or {}},
    }


def _result(where: str, block: Block, names: dict[str, str]) -> Message:
    id = _needed(block.tool_use_id, where, "tool_use_id")
    if id not in names:
        raise ApiError(400, f"{where}: tool_use_id {id!r:.60} does not match an earlier tool_use")
    text = block.content or ""
    if not isinstance(text, str):
        for inner in text:
            if inner.type != "text":
                raise ApiError(
                    400, f"{where}: {inner.type!r:.60} blocks are not supported in a tool_result"
                )
        text = "\n".join(_needed(inner.text, where, "text") for inner in text)
    if block.is_error:
        text = json.dumps({"error": text}, ensure_ascii=False)
    return {"role": "tool", "tool_call_id": id, "name": names[id], "content": text}


def _needed(value: str | None, where: str, name: str) -> str:
    if value is None:
        raise ApiError(400, f"{where}: a block has no {name!r}")
    return value


def _joined(turn: list[Message]) -> Message:
    result: Message = {}
    for part in turn:
        result |= part
    for name in ("content", "reasoning_content"):
        texts = [part[name] for part in turn if part.get(name)]
        if texts:
            result[name] = "\n".join(texts)
    calls = [call for part in turn for call in part.get("tool_calls", ())]
    return {**result, "tool_calls": calls} if calls else result


class ToolBody(ParameterGroup):
    """A tool of the client; Anthropic's own tools have other types."""

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH)]
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    type: str | None = None
    strict: bool | None = None
    cache_control: dict[str, Any] | None = None  # no effect: prefixes are always cached


class ChoiceBody(ParameterGroup):
    """Whether a tool must be called, and which."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class FormatBody(ParameterGroup):
    """The format that the answer must have."""

    type: Literal["json_schema"]
    schema_: Annotated[dict[str, Any], Field(alias="schema")]


class OutputBody(ParameterGroup):
    """The format of the answer, and the reasoning effort."""

    format: FormatBody | None = None
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None


class Metadata(ParameterGroup):
    """The user; it is ignored."""

    user_id: str | None = None


class ThreadBody(ParameterGroup):
    """Whether the server holds the conversation, and which one it continues."""

    type: Literal["create", "continue"]
    previous_message_id: str | None = None


class Conversation(TemplateBody):
    """What both bodies have."""

    model: str | None = None
    messages: Annotated[Many[MessageBody], Field(min_length=1)]
    system: str | Many[SystemBlock] | None = None
    tools: Tools[ToolBody] | None = None
    tool_choice: ChoiceBody | None = None
    thinking: ThinkingBody | None = None
    output_config: OutputBody | None = None
    cache_control: dict[str, Any] | None = None  # no effect: prefixes are always cached
    stop_sequences: Few[StopSequence] | None = None
    stream: bool | None = None
    thread: ThreadBody | None = None
    metadata: Metadata | None = None


class CountBody(Conversation):
    """A conversation whose tokens are counted; other fields have no effect."""


class MessagesBody(Conversation):
    """A conversation to continue."""

    max_tokens: Annotated[int, Field(ge=1)]


def chat_of(body: Conversation, options: RequestOptions) -> Chat:
    """The chat that a body asks for."""
    schema = None
    if body.output_config is not None and body.output_config.format is not None:
        form = body.output_config.format
        schema = {"type": "json_schema", "json_schema": {"schema": form.schema_}}
    choice = body.tool_choice
    return Chat(
        messages=template_messages(body.messages, body.system),
        params=params_of(body, options, stop=body.stop_sequences, response_format=schema),
        tools=[_tool(tool) for tool in body.tools or ()],
        tool_choice=_choice(body),
        parallel_tool_calls=not (choice and choice.disable_parallel_tool_use),
        thinking_tokens=body.thinking.budget_tokens if body.thinking else None,
        separates_reasoning=separates_reasoning(body, options),
        priority=body.priority or 0,
        speculation=body.speculation or "auto",
        template_options=_template_options(body),
    )


def _tool(tool: ToolBody) -> dict[str, object]:
    if tool.type not in (None, "custom"):
        raise ApiError(
            400,
            f"tool {tool.name!r} is of type {tool.type!r:.60}; this type is not supported",
        )
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input_schema,
        "strict": tool.strict,
    }
    return {"type": "function", "function": function}


def _choice(body: Conversation) -> ToolChoice:
    choice = body.tool_choice
    match choice and choice.type:
        case "any":
            return "required"
        case "tool":
            assert choice is not None
            return named_tool(choice.name, [tool.name for tool in body.tools or ()])
        case "none":
            return "none"
        case _:
            return "auto"


def _template_options(body: Conversation) -> dict[str, object]:
    effort = body.output_config.effort if body.output_config else None
    if effort not in (None, "low", "medium"):
        effort = "high"  # the highest that templates know
    return template_options(body, body.thinking, effort)
