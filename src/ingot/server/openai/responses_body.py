"""The body of `/v1/responses`, and what it asks for."""

from typing import Annotated, Any, Literal

from pydantic import Field

from ingot.reply import NamedTool, ToolChoice
from ingot.server.body_limits import LONGEST_NAME, Few, Many, Name, Tools
from ingot.server.chatting import Chat
from ingot.server.errors import ApiError
from ingot.server.openai.messages import ChatMessage, for_template
from ingot.server.openai.responses_items import Item, messages_of
from ingot.server.options import ServerOptions
from ingot.server.sampling_body import Body, SamplingBody, params_of

_MetadataText = Annotated[str, Field(max_length=512)]  # as OpenAI has it


class FunctionTool(Body):
    """A function that the model may call; tools of other types are refused by name."""

    type: str
    name: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)] | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamedChoice(Body):
    """A function that must be called."""

    type: Literal["function"]
    name: str


class TextFormat(Body):
    """What an answer must look like."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None


class TextOptions(Body):
    """How the answer is written."""

    format: TextFormat | None = None


class ReasoningOptions(Body):
    """How much the model thinks."""

    effort: str | None = None


class ResponsesBody(SamplingBody):
    """A conversation, and how it is to go on."""

    model: str | None = None
    input: str | Annotated[Many[Item], Field(min_length=1)]
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    tools: Tools[FunctionTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    metadata: Annotated[dict[str, _MetadataText], Field(max_length=16)] | None = None
    top_logprobs: int | None = None
    include: Few[Name] | None = None
    background: bool | None = None
    conversation: str | dict[str, Any] | None = None
    user: str | None = None

    @property
    def items(self) -> tuple[Item, ...]:
        """What is said now."""
        if isinstance(self.input, str):
            return (Item(type="message", role="user", content=self.input),)
        return tuple(self.input)


def chat_of(body: ResponsesBody, items: tuple[Item, ...], options: ServerOptions) -> Chat:
    """What a body asks for; `items` are the whole conversation."""
    _refuse(body)
    messages = messages_of(items)
    if body.instructions:
        messages.insert(0, ChatMessage(role="system", content=body.instructions))
    effort = body.reasoning and body.reasoning.effort
    return Chat(
        messages=for_template(messages),
        params=params_of(
            body, options, max_tokens=body.max_output_tokens, response_format=_form(body)
        ),
        tools=[_tool(number, tool) for number, tool in enumerate(body.tools or ())],
        tool_choice=_choice(body),
        parallel_tool_calls=body.parallel_tool_calls is not False,
        template_options={"reasoning_effort": effort} if isinstance(effort, str) else {},
    )


def _refuse(body: ResponsesBody) -> None:
    """Say no to what would otherwise be missing without a word."""
    if body.background:
        raise ApiError(400, "answers are not written in the background here", param="background")
    if body.conversation is not None:
        raise ApiError(
            400,
            "this server keeps no conversations; send the items, or previous_response_id",
            param="conversation",
        )
    if body.top_logprobs or "message.output_text.logprobs" in (body.include or ()):
        raise ApiError(
            400,
            "log-probabilities are told at /v1/chat/completions only",
            param="top_logprobs" if body.top_logprobs else "include",
        )


def _tool(number: int, tool: FunctionTool) -> dict[str, Any]:
    if tool.type != "function":
        raise ApiError(
            400,
            f"tools[{number}] is of type {tool.type!r:.60}; this server has none of those",
            param=f"tools[{number}].type",
        )
    function = tool.model_dump(exclude={"type"}, exclude_none=True)
    return {"type": "function", "function": function}


def _choice(body: ResponsesBody) -> ToolChoice:
    match body.tool_choice:
        case NamedChoice(name=name):
            if name not in [tool.name for tool in body.tools or ()]:
                raise ApiError(
                    400, f"tool_choice names {name!r:.60}, which is no tool", param="tool_choice"
                )
            return NamedTool(name)
        case None:
            return "auto"
        case choice:
            return choice


def _form(body: ResponsesBody) -> dict[str, Any] | None:
    """The format as `/v1/chat/completions` has it."""
    form = body.text and body.text.format
    if not isinstance(form, TextFormat):
        return None
    if form.type == "json_schema":
        if form.schema_ is None:
            raise ApiError(400, "text.format has no schema", param="text.format.schema")
        return {"type": form.type, "json_schema": {"schema": form.schema_}}
    return {"type": form.type}
