"""The bodies of `/v1/messages` and `/v1/messages/count_tokens`, and what they ask for."""

from typing import Annotated, Any, Literal

from pydantic import Field

from ingot.reply import NamedTool, ToolChoice
from ingot.server.anthropic.conversation import MessageBody, SystemBlock, for_template
from ingot.server.body_limits import LONGEST_NAME, Few, Many, Tools
from ingot.server.chatting import Chat
from ingot.server.errors import ApiError
from ingot.server.options import ServerOptions
from ingot.server.sampling_body import Body, SamplingBody, StopText, params_of


class ToolBody(Body):
    """A tool of the client's; Anthropic's own have other types."""

    name: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    type: str | None = None
    strict: bool | None = None


class ChoiceBody(Body):
    """Whether a tool must be called, and which."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class ThinkingBody(Body):
    """Whether the model thinks first, and for how many tokens at most."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: Annotated[int, Field(ge=1)] | None = None


class FormatBody(Body):
    """What the answer must look like."""

    type: Literal["json_schema"]
    schema_: Annotated[dict[str, Any], Field(alias="schema")]


class OutputBody(Body):
    """The form of the answer, and the effort put into it."""

    format: FormatBody | None = None
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None


class Metadata(Body):
    """Who asks; it is not used."""

    user_id: str | None = None


class Conversation(Body):
    """What both bodies have: all that the model reads."""

    model: str | None = None
    messages: Annotated[Many[MessageBody], Field(min_length=1)]
    system: str | Many[SystemBlock] | None = None
    tools: Tools[ToolBody] | None = None
    tool_choice: ChoiceBody | None = None
    thinking: ThinkingBody | None = None
    output_config: OutputBody | None = None


class CountBody(Conversation):
    """A conversation to be counted."""


class MessagesBody(Conversation, SamplingBody):
    """A conversation to be answered."""

    max_tokens: Annotated[int, Field(ge=1)]
    stop_sequences: Few[StopText] | None = None
    stream: bool | None = None
    metadata: Metadata | None = None


def chat_of(body: Conversation, options: ServerOptions) -> Chat:
    """What a body asks for."""
    schema = None
    if body.output_config is not None and body.output_config.format is not None:
        form = body.output_config.format
        schema = {"type": "json_schema", "json_schema": {"schema": form.schema_}}
    choice = body.tool_choice
    stops = body.stop_sequences if isinstance(body, MessagesBody) else None
    return Chat(
        messages=for_template(body.messages, body.system),
        params=params_of(body, options, stop=stops, response_format=schema),
        tools=[_tool(tool) for tool in body.tools or ()],
        tool_choice=_choice(body),
        parallel_tool_calls=not (choice and choice.disable_parallel_tool_use),
        thinking_tokens=body.thinking.budget_tokens if body.thinking else None,
        template_options=_template_options(body),
    )


def _tool(tool: ToolBody) -> dict[str, Any]:
    if tool.type not in (None, "custom"):
        raise ApiError(
            400, f"tool {tool.name!r} is of type {tool.type!r:.60}; this server has none of those"
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
            if choice.name not in [tool.name for tool in body.tools or ()]:
                raise ApiError(400, f"tool_choice names {choice.name!r:.60}, which is no tool")
            return NamedTool(str(choice.name))
        case "none":
            return "none"
        case _:
            return "auto"


def _template_options(body: Conversation) -> dict[str, Any]:
    """What the template is told: families have their own names for it."""
    options: dict[str, Any] = {}
    if body.thinking is not None:
        thinks = body.thinking.type != "disabled"
        options |= {"enable_thinking": thinks, "thinking": thinks}
    if body.output_config is not None and body.output_config.effort is not None:
        effort = body.output_config.effort
        options["reasoning_effort"] = effort if effort in ("low", "medium") else "high"
    return options
