"""Fields of chat bodies that the chat template reads, or that say how reasoning is returned.

Fields come in, variables of the template go out. It does not know messages.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from ingot.reply.style import ReasoningFormat
from ingot.server.errors import ApiError
from ingot.server.options import RequestOptions
from ingot.server.sampling_body import ParameterGroup, SamplingBody

_RESERVED = ("messages", "tools", "variant", "documents")


class ThinkingBody(ParameterGroup):
    """Whether the model reasons first, and for how many tokens at most."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: Annotated[int, Field(ge=1)] | None = None


class TemplateBody(SamplingBody):
    """What the bodies of chat endpoints share."""

    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_format: ReasoningFormat | None = None


def template_options(
    body: TemplateBody, thinking: ThinkingBody | None = None, effort: str | None = None
) -> dict[str, object]:
    """Variables for the chat template; `chat_template_kwargs` take precedence."""
    given = body.chat_template_kwargs or {}
    for name in _RESERVED:
        if name in given:
            raise ApiError(
                400,
                f"chat_template_kwargs cannot set {name!r}",
                param="chat_template_kwargs",
            )
    options: dict[str, object] = {}
    if thinking is not None:
        options |= thinking_variables(thinks=thinking.type != "disabled")
    if effort is not None:
        options["reasoning_effort"] = effort
    return options | given


def thinking_variables(*, thinks: bool) -> dict[str, object]:
    """Whether the model reasons first; model families have different names for it."""
    return {"enable_thinking": thinks, "thinking": thinks}


def separates_reasoning(body: TemplateBody, options: RequestOptions) -> bool:
    """Whether reasoning is separate from the answer."""
    if body.reasoning_format is None:
        return options.separates_reasoning
    return body.reasoning_format != "none"
