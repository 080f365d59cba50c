"""The body of `/v1/chat/completions`: messages, tools, formats, and the `Chat` they ask for."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from ingot.reply import ToolChoice
from ingot.sampling.checks import MOST_PROBABILITIES
from ingot.server.body_limits import MAX_NAME_LENGTH, Few, Many, Tools
from ingot.server.chat import Chat, Message, named_tool
from ingot.server.errors import ApiError
from ingot.server.mcp.servers import OfferedTool
from ingot.server.openai.mcp_body import OneOf, functions
from ingot.server.openai.shared import Choices, StreamOptions
from ingot.server.options import RequestOptions
from ingot.server.prompt_tokens import PromptTokens
from ingot.server.request_adapters import AdapterScale
from ingot.server.sampling_body import Body, ParameterGroup, params_of
from ingot.server.template_body import (
    TemplateBody,
    ThinkingBody,
    separates_reasoning,
    template_options,
)


class Part(Body):
    """A part of a message. Parts other than text are refused with an error that names them."""

    type: str
    text: str | None = None


class CalledFunction(Body):
    """A function and its arguments, which are JSON as text."""

    name: str
    arguments: str = "{}"


class ToolCall(Body):
    """A tool call of the model."""

    id: str | None = None
    type: Literal["function"] = "function"
    function: CalledFunction


class McpCall(Body):
    """A call that the server has run for an earlier answer."""

    id: str
    name: str
    arguments: str = "{}"
    output: str | None = None
    error: str | None = None


class ChatMessage(Body):
    """A message."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | Many[Part] | None = None
    name: str | None = None
    tool_calls: Many[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    mcp_calls: Many[McpCall] | None = None  # that came before the content


Messages = Annotated[Many[ChatMessage], Field(min_length=1)]


def template_messages(messages: list[ChatMessage]) -> list[Message]:
    """The messages as chat templates read them: content is text."""
    return [
        made
        for number, message in enumerate(messages)
        for made in (*_mcp_messages(message), _message(number, message))
    ]


def _mcp_messages(message: ChatMessage) -> list[Message]:
    """The calls that the server ran before it gave an answer, and their results."""
    if not message.mcp_calls:
        return []
    calls = [
        ToolCall(id=call.id, function=CalledFunction(name=call.name, arguments=call.arguments))
        for call in message.mcp_calls
    ]
    said: Message = {
        "role": "assistant",
        "content": "",
        "tool_calls": [_call(each) for each in calls],
    }
    results: list[Message] = [
        {
            "role": "tool",
            "tool_call_id": call.id,
            "name": call.name,
            "content": call.output or call.error or "",
        }
        for call in message.mcp_calls
    ]
    return [said, *results]


def _message(number: int, message: ChatMessage) -> Message:
    result: Message = {"role": "tool" if message.role == "function" else message.role}
    content = _text(number, message.content)
    if content is None and not message.tool_calls:
        raise ApiError(
            400, f"messages[{number}] has no content", param=f"messages[{number}].content"
        )
    result["content"] = content or ""
    for name in ("name", "tool_call_id", "reasoning_content"):
        if (value := getattr(message, name)) is not None:
            result[name] = value
    if message.tool_calls:
        result["tool_calls"] = [_call(call) for call in message.tool_calls]
    return result


def _text(number: int, content: str | list[Part] | None) -> str | None:
    if content is None or isinstance(content, str):
        return content
    for part in content:
        if part.type not in ("text", "input_text", "output_text", "refusal"):
            raise ApiError(
                400,
                f"messages[{number}] has a part of type {part.type!r:.40}; only text is supported",
                param=f"messages[{number}].content",
            )
    return "\n".join(part.text or "" for part in content)


def _call(call: ToolCall) -> dict[str, object]:
    return {
        "id": call.id or "",
        "type": "function",
        "function": {"name": call.function.name, "arguments": call.function.arguments},
    }


MAX_TOP_LOGPROBS = 20


class Function(ParameterGroup):
    """A function that the model may call."""

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(ParameterGroup):
    """A tool."""

    type: Literal["function"]
    function: Function


class NamedFunction(ParameterGroup):
    """A function by its name."""

    name: str


class NamedChoice(ParameterGroup):
    """A tool that the model must call."""

    type: Literal["function"]
    function: NamedFunction


class SchemaFormat(ParameterGroup):
    """A JSON schema."""

    name: str | None = None
    description: str | None = None
    schema_: Annotated[dict[str, Any] | bool, Field(alias="schema")] = True
    strict: bool | None = None


class ResponseFormat(ParameterGroup):
    """The format that the answer must have; a schema may also be given without a name."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: SchemaFormat | None = None
    schema_: Annotated[dict[str, Any] | bool | None, Field(alias="schema")] = None


class ChatBody(TemplateBody):
    """A conversation, and how to continue it."""

    model: str | None = None
    messages: Messages
    n: Choices | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    n_probs: Annotated[int, Field(ge=0, le=MOST_PROBABILITIES)] | None = None
    response_format: ResponseFormat | None = None
    tools: Tools[OneOf[FunctionTool]] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    thinking: ThinkingBody | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    truncate_prompt_tokens: PromptTokens | None = None
    include_stop_str_in_output: bool | None = None
    timings_per_token: bool | None = None
    return_progress: bool | None = None
    max_tool_calls: Annotated[int, Field(ge=1)] | None = None
    lora: Few[AdapterScale] | None = None
    user: str | None = None

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def wants_logprobs(self) -> bool:
        """Whether the answer has the logprobs of its tokens."""
        return bool(self.logprobs or self.n_probs)


def chat_of(
    body: ChatBody, options: RequestOptions, offered: Mapping[str, OfferedTool] | None = None
) -> Chat:
    """The chat that a body asks for; `offered` are its tools of MCP servers."""
    own = functions(body.tools, offered)
    mcp = (offered or {}).values()
    if body.top_logprobs is not None and not body.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs: true", param="top_logprobs")
    if body.continue_final_message and body.add_generation_prompt:
        raise ApiError(
            400,
            "add_generation_prompt begins a new message, so it cannot be combined with "
            "continue_final_message",
            param="add_generation_prompt",
        )
    form = body.response_format
    if form and form.type == "text" and (form.schema_, form.json_schema) != (None, None):
        raise ApiError(400, "a response_format of type text has no schema", param="response_format")
    params = params_of(
        body,
        options,
        logprobs=body.wants_logprobs or None,
        top_logprobs=body.top_logprobs,
        n_probs=body.n_probs or None,
        response_format=form and form.model_dump(by_alias=True, exclude_none=True),
    )
    return Chat(
        messages=template_messages(body.messages),
        params=params,
        count=body.n or 1,
        tools=[
            *(tool.model_dump(exclude_none=True) for tool in own),
            *(tool.function for tool in mcp),
        ],
        tool_choice=_choice(body, [*(tool.function.name for tool in own), *(offered or ())]),
        parallel_tool_calls=body.parallel_tool_calls is not False,
        include_stop=bool(body.include_stop_str_in_output),
        most_prompt_tokens=body.truncate_prompt_tokens,
        continues_last=body.continue_final_message,
        thinking_tokens=body.thinking.budget_tokens if body.thinking else None,
        separates_reasoning=separates_reasoning(body, options),
        lora=body.lora,
        priority=body.priority or 0,
        speculation=body.speculation or "auto",
        template_options=_template_options(body),
    )


def _choice(body: ChatBody, names: Sequence[str]) -> ToolChoice:
    match body.tool_choice:
        case NamedChoice(function=function):
            return named_tool(function.name, names)
        case None:
            return "auto"
        case choice:
            return choice


def _template_options(body: ChatBody) -> dict[str, object]:
    options = template_options(body, body.thinking, body.reasoning_effort)
    if body.add_generation_prompt is False and not body.continue_final_message:
        options["add_generation_prompt"] = False
    return options
