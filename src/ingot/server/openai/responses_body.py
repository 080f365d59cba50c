"""The body of `/v1/responses`: items, tools, formats, and the `Chat` they ask for.

Items become messages in the form of `/v1/chat/completions`. Reasoning, text and function calls of
the model that follow each other become one message.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from ingot.reply import ToolChoice
from ingot.server.body_limits import MAX_NAME_LENGTH, Few, Many, Name, Tools
from ingot.server.chat import Chat, named_tool
from ingot.server.errors import ApiError
from ingot.server.mcp.servers import OfferedTool
from ingot.server.openai.chat_body import (
    CalledFunction,
    ChatMessage,
    Part,
    ToolCall,
    template_messages,
)
from ingot.server.openai.mcp_body import OneOf, functions
from ingot.server.options import RequestOptions
from ingot.server.sampling_body import Body, ParameterGroup, params_of
from ingot.server.template_body import TemplateBody, separates_reasoning, template_options


class Item(Body):
    """One item. Which fields it must have depends on its type."""

    type: str | None = None
    id: str | None = None
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | Many[Part] | None = None
    summary: Many[Part] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | Many[Part] | None = None
    server_label: str | None = None
    error: str | None = None
    approval_request_id: str | None = None
    approve: bool | None = None


def messages_of(items: Iterable[Item]) -> list[ChatMessage]:
    """The messages that items become."""
    messages: list[ChatMessage] = []
    names: dict[str, str] = {}  # function names by the ids of their calls
    requests: dict[str, Item] = {}  # for approval
    reasoning: str | None = None
    for number, item in enumerate(items):
        where = f"input[{number}]"
        match item.type or ("message" if item.role else None):
            case "message":
                if item.role is None or item.content is None:
                    raise _missing(where, "content" if item.role else "role")
                message = ChatMessage(role=item.role, content=item.content)
                if item.role == "assistant":
                    message.reasoning_content, reasoning = reasoning, None
                messages.append(message)
            case "reasoning":
                reasoning = _reasoning(item) or reasoning
            case "function_call":
                call = _call(where, item)
                names[str(call.id)] = call.function.name
                if not messages or messages[-1].role != "assistant" or reasoning is not None:
                    messages.append(ChatMessage(role="assistant", reasoning_content=reasoning))
                    reasoning = None
                messages[-1].tool_calls = messages[-1].tool_calls or []
                messages[-1].tool_calls.append(call)
            case "function_call_output":
                messages.append(_result(where, item, names))
            case "mcp_call" | "mcp_approval_request" | "mcp_approval_response" | "mcp_list_tools":
                messages += _mcp_messages(where, item, requests)
            case kind:
                raise ApiError(
                    400, f"{where} is of type {kind!r:.60}, which this server does not support"
                )
    return messages


def approved_calls(items: Iterable[Item]) -> list[Item]:
    """The requests for approval that the client has approved and that have not run yet."""
    items = list(items)
    approved = {item.approval_request_id for item in items if item.approve}
    done = {item.approval_request_id for item in items if item.type == "mcp_call"}
    return [
        item for item in items if item.type == "mcp_approval_request" and item.id in approved - done
    ]


def _mcp_messages(where: str, item: Item, requests: dict[str, Item]) -> list[ChatMessage]:
    """The messages that an item about MCP becomes; `requests` for approval are kept by their id."""
    match item.type:
        case "mcp_call":
            return _ran(where, item, item.output or item.error or "")
        case "mcp_approval_request":
            requests[str(item.id)] = item
        case "mcp_approval_response":
            if (request := requests.get(str(item.approval_request_id))) is None:
                raise ApiError(400, f"{where} does not match an earlier mcp_approval_request")
            if not item.approve:
                return _ran(where, request, "The user does not allow this call.")
    return []  # approved calls run now; the servers are asked for their tools again


def _ran(where: str, item: Item, output: str | list[Part]) -> list[ChatMessage]:
    """A call of an MCP tool, and its result."""
    if item.name is None or item.id is None:
        raise _missing(where, "id" if item.name else "name")
    function = CalledFunction(name=item.name, arguments=item.arguments or "{}")
    said = ChatMessage(role="assistant", tool_calls=[ToolCall(id=item.id, function=function)])
    result = ChatMessage(role="tool", content=output, tool_call_id=item.id, name=item.name)
    return [said, result]


def _reasoning(item: Item) -> str | None:
    parts = item.content or item.summary or ()
    texts = [parts] if isinstance(parts, str) else [part.text or "" for part in parts]
    return "\n".join(texts) or None


def _call(where: str, item: Item) -> ToolCall:
    if item.name is None or item.call_id is None:
        raise _missing(where, "call_id" if item.name else "name")
    function = CalledFunction(name=item.name, arguments=item.arguments or "{}")
    return ToolCall(id=item.call_id, function=function)


def _result(where: str, item: Item, names: dict[str, str]) -> ChatMessage:
    if item.call_id is None or item.output is None:
        raise _missing(where, "output" if item.call_id else "call_id")
    if item.call_id not in names:
        raise ApiError(
            400, f"{where}: call_id {item.call_id!r:.60} does not match an earlier function_call"
        )
    name = names[item.call_id]
    return ChatMessage(role="tool", content=item.output, tool_call_id=item.call_id, name=name)


def _missing(where: str, name: str) -> ApiError:
    return ApiError(400, f"{where} has no {name!r}", param=f"{where}.{name}")


_MetadataText = Annotated[str, Field(max_length=512)]  # OpenAI's limit


class FunctionTool(ParameterGroup):
    """A function that the model may call; other types of tools are refused by name."""

    type: str
    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH)] | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamedChoice(ParameterGroup):
    """A function that the model must call."""

    type: Literal["function"]
    name: str


class TextFormat(ParameterGroup):
    """The format that the answer must have."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None


class TextOptions(ParameterGroup):
    """Options of the answer's text."""

    format: TextFormat | None = None


class ReasoningOptions(ParameterGroup):
    """Options of reasoning."""

    effort: str | None = None


class ResponsesBody(TemplateBody):
    """A conversation, and how to continue it."""

    model: str | None = None
    input: str | Annotated[Many[Item], Field(min_length=1)]
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    tools: Tools[OneOf[FunctionTool]] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    metadata: Annotated[dict[str, _MetadataText], Field(max_length=16)] | None = None
    include: Few[Name] | None = None
    max_tool_calls: Annotated[int, Field(ge=1)] | None = None
    timings_per_token: bool | None = None
    return_progress: bool | None = None
    user: str | None = None

    @property
    def items(self) -> tuple[Item, ...]:
        """The items of this request."""
        if isinstance(self.input, str):
            return (Item(type="message", role="user", content=self.input),)
        return tuple(self.input)


def chat_of(
    body: ResponsesBody,
    items: tuple[Item, ...],
    options: RequestOptions,
    offered: Mapping[str, OfferedTool] | None = None,
) -> Chat:
    """The chat that a body asks for; `items` are the whole conversation.

    `offered` are its tools of MCP servers.
    """
    _refuse(body)
    own = functions(body.tools, offered)
    messages = messages_of(items)
    if body.instructions:
        messages.insert(0, ChatMessage(role="system", content=body.instructions))
    return Chat(
        messages=template_messages(messages),
        params=params_of(
            body, options, max_tokens=body.max_output_tokens, response_format=_form(body)
        ),
        tools=[
            *(_tool(number, tool) for number, tool in enumerate(own)),
            *(tool.function for tool in (offered or {}).values()),
        ],
        tool_choice=_choice(body, [*(tool.name for tool in own), *(offered or ())]),
        parallel_tool_calls=body.parallel_tool_calls is not False,
        separates_reasoning=separates_reasoning(body, options),
        priority=body.priority or 0,
        speculation=body.speculation or "auto",
        template_options=template_options(
            body, effort=body.reasoning.effort if body.reasoning else None
        ),
    )


def _refuse(body: ResponsesBody) -> None:
    """Refuse what would be left out of the answer silently."""
    if "message.output_text.logprobs" in (body.include or ()):
        raise ApiError(400, "logprobs are available only at /v1/chat/completions", param="include")


def _tool(number: int, tool: FunctionTool) -> dict[str, object]:
    if tool.type != "function":
        raise ApiError(
            400,
            f"tools[{number}] is of type {tool.type!r:.60}; only functions and mcp are supported",
            param=f"tools[{number}].type",
        )
    function = tool.model_dump(exclude={"type"}, exclude_none=True)
    return {"type": "function", "function": function}


def _choice(body: ResponsesBody, names: Sequence[str | None]) -> ToolChoice:
    match body.tool_choice:
        case NamedChoice(name=name):
            return named_tool(name, names)
        case None:
            return "auto"
        case choice:
            return choice


def _form(body: ResponsesBody) -> dict[str, object] | None:
    """The format in the form of `/v1/chat/completions`."""
    form = body.text and body.text.format
    if not isinstance(form, TextFormat):
        return None
    if form.type == "json_schema":
        if form.schema_ is None:
            raise ApiError(400, "text.format has no schema", param="text.format.schema")
        return {"type": form.type, "json_schema": {"schema": form.schema_}}
    return {"type": form.type}
