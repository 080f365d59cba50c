"""Items: what a conversation is made of at `/v1/responses`, and the messages they become.

Comes in: items as clients send them, or as answers hold them. Goes out: messages in the form of
`/v1/chat/completions`. Reasoning, words and calls of the model that follow each other are one
message.
"""

from collections.abc import Iterable
from typing import Literal

from ingot.server.body_limits import Many
from ingot.server.errors import ApiError
from ingot.server.openai.messages import CalledFunction, ChatMessage, Part, ToolCall
from ingot.server.sampling_body import Body


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


def messages_of(items: Iterable[Item]) -> list[ChatMessage]:
    """The messages that items make."""
    made: list[ChatMessage] = []
    names: dict[str, str] = {}  # of functions, by the ids of their calls
    thoughts: str | None = None
    for number, item in enumerate(items):
        where = f"input[{number}]"
        match item.type or ("message" if item.role else None):
            case "message":
                if item.role is None or item.content is None:
                    raise _missing(where, "content" if item.role else "role")
                message = ChatMessage(role=item.role, content=item.content)
                if item.role == "assistant":
                    message.reasoning_content, thoughts = thoughts, None
                made.append(message)
            case "reasoning":
                thoughts = _thoughts(item) or thoughts
            case "function_call":
                call = _call(where, item)
                names[str(call.id)] = call.function.name
                if not made or made[-1].role != "assistant" or thoughts is not None:
                    made.append(ChatMessage(role="assistant", reasoning_content=thoughts))
                    thoughts = None
                made[-1].tool_calls = made[-1].tool_calls or []
                made[-1].tool_calls.append(call)
            case "function_call_output":
                made.append(_result(where, item, names))
            case kind:
                raise ApiError(
                    400, f"{where} is of type {kind!r:.60}, which this server does not read"
                )
    return made


def _thoughts(item: Item) -> str | None:
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
            400, f"{where}: call_id {item.call_id!r:.60} is the id of no function_call before it"
        )
    name = names[item.call_id]
    return ChatMessage(role="tool", content=item.output, tool_call_id=item.call_id, name=name)


def _missing(where: str, name: str) -> ApiError:
    return ApiError(400, f"{where} has no {name!r}", param=f"{where}.{name}")
