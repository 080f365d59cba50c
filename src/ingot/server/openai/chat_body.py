"""The body of `/v1/chat/completions`, and what it asks for."""

from typing import Annotated, Any, Literal

from pydantic import Field

from ingot.reply import NamedTool, ToolChoice
from ingot.server.body_limits import LONGEST_NAME, Few, Name, Tools
from ingot.server.chatting import Chat
from ingot.server.errors import ApiError
from ingot.server.openai.completions import Choices, StreamOptions
from ingot.server.openai.messages import Messages, for_template
from ingot.server.options import ServerOptions
from ingot.server.sampling_body import Body, SamplingBody, params_of

MAX_TOP_LOGPROBS = 20


class Function(Body):
    """A function that the model may call."""

    name: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(Body):
    """A tool."""

    type: Literal["function"]
    function: Function


class NamedFunction(Body):
    """The name of a function."""

    name: str


class NamedChoice(Body):
    """A tool that must be called."""

    type: Literal["function"]
    function: NamedFunction


class SchemaFormat(Body):
    """A JSON schema."""

    name: str | None = None
    description: str | None = None
    schema_: Annotated[dict[str, Any] | bool, Field(alias="schema")] = True
    strict: bool | None = None


class ResponseFormat(Body):
    """What an answer must look like."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: SchemaFormat | None = None


class ChatBody(SamplingBody):
    """A conversation, and how it is to go on."""

    model: str | None = None
    messages: Messages
    n: Choices | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    response_format: ResponseFormat | None = None
    tools: Tools[FunctionTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    modalities: Few[Name] | None = None
    user: str | None = None

    @property
    def includes_usage(self) -> bool:
        """Whether a stream is to end with the number of tokens."""
        return bool(self.stream_options and self.stream_options.include_usage)


def chat_of(body: ChatBody, options: ServerOptions) -> Chat:
    """What a body asks for."""
    if body.modalities is not None and body.modalities != ["text"]:
        raise ApiError(400, "this server answers in text only", param="modalities")
    if body.top_logprobs is not None and not body.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs: true", param="top_logprobs")
    form = body.response_format
    params = params_of(
        body,
        options,
        logprobs=body.logprobs,
        top_logprobs=body.top_logprobs,
        response_format=form and form.model_dump(by_alias=True, exclude_none=True),
    )
    return Chat(
        messages=for_template(body.messages),
        params=params,
        count=body.n or 1,
        tools=[tool.model_dump(exclude_none=True) for tool in body.tools or ()],
        tool_choice=_choice(body),
        parallel_tool_calls=body.parallel_tool_calls is not False,
        template_options=_template_options(body),
    )


def _choice(body: ChatBody) -> ToolChoice:
    match body.tool_choice:
        case NamedChoice(function=function):
            if function.name not in [tool.function.name for tool in body.tools or ()]:
                raise ApiError(
                    400,
                    f"tool_choice names {function.name!r}, which is no tool",
                    param="tool_choice",
                )
            return NamedTool(function.name)
        case None:
            return "auto"
        case choice:
            return choice


_OWN_NAMES = ("messages", "tools", "variant", "documents")


def _template_options(body: ChatBody) -> dict[str, Any]:
    given = dict(body.chat_template_kwargs or {})
    for name in _OWN_NAMES:
        if name in given:
            raise ApiError(
                400,
                f"chat_template_kwargs cannot hold {name!r}",
                param="chat_template_kwargs",
            )
    if body.reasoning_effort is not None:
        given.setdefault("reasoning_effort", body.reasoning_effort)
    return given
