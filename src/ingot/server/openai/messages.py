"""Messages as OpenAI's bodies have them, and as chat templates read them."""

from typing import Annotated, Any, Literal

from pydantic import Field

from ingot.server.body_limits import Many
from ingot.server.chatting import Message
from ingot.server.errors import ApiError
from ingot.server.sampling_body import Body


class Part(Body):
    """A part of a message. Only text can be read; what else there is gets refused by name."""

    type: str
    text: str | None = None


class CalledFunction(Body):
    """What was called, and with what: JSON as text."""

    name: str
    arguments: str = "{}"


class ToolCall(Body):
    """A call that the model made."""

    id: str | None = None
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(Body):
    """Something said."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | Many[Part] | None = None
    name: str | None = None
    tool_calls: Many[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


Messages = Annotated[Many[ChatMessage], Field(min_length=1)]


def for_template(messages: list[ChatMessage]) -> list[Message]:
    """The messages as templates read them: content is text."""
    return [_message(number, message) for number, message in enumerate(messages)]


def _message(number: int, message: ChatMessage) -> Message:
    made: Message = {"role": "tool" if message.role == "function" else message.role}
    content = _text(number, message.content)
    if content is None and not message.tool_calls:
        raise ApiError(
            400, f"messages[{number}] has no content", param=f"messages[{number}].content"
        )
    made["content"] = content or ""
    for name in ("name", "tool_call_id", "reasoning_content"):
        if (value := getattr(message, name)) is not None:
            made[name] = value
    if message.tool_calls:
        made["tool_calls"] = [_call(call) for call in message.tool_calls]
    return made


def _text(number: int, content: str | list[Part] | None) -> str | None:
    if content is None or isinstance(content, str):
        return content
    for part in content:
        if part.type not in ("text", "input_text", "output_text", "refusal"):
            raise ApiError(
                400,
                f"messages[{number}] has a part of type {part.type!r:.40}; this server reads text",
                param=f"messages[{number}].content",
            )
    return "\n".join(part.text or "" for part in content)


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id or "",
        "type": "function",
        "function": {"name": call.function.name, "arguments": call.function.arguments},
    }
