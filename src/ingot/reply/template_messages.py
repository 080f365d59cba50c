"""Messages and tools in the form that a model's chat template can render.

Messages in OpenAI's form, or one text, and tools come in. The content of a message becomes text,
and functions become mappings. If the template has no place for tools, the system
message lists them and explains how to call them, and earlier tool calls and their results become
text. If the template renders tool calls but no tools (`CallStyle` is not JSON), only the list is
added.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ingot.errors import ChatTemplateError
from ingot.reply.style import CallStyle, ReplyStyle
from ingot.reply.tools import ToolLike, read_tools

Message = Mapping[str, Any]

_LIST = "You can call these functions:"
_HOW = (
    "To call a function, answer with nothing but a JSON object on a line of its own, "
    '{"name": <name of the function>, "arguments": <object of its arguments>}, '
    "one line for each call. Otherwise answer in words."
)


def as_messages(messages: str | Sequence[Message]) -> Sequence[Message]:
    """Messages whose content is text; a text alone is a message of the user.

    The template refuses what is not a message.
    """
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    if not isinstance(messages, list | tuple):
        return messages
    return [_with_text(number, message) for number, message in enumerate(messages)]


def _with_text(number: int, message: Message) -> Message:
    parts = message.get("content") if isinstance(message, Mapping) else None
    return {**message, "content": _text(number, parts)} if isinstance(parts, list) else message


def _text(number: int, parts: Sequence[object]) -> str:
    texts = []
    for part in parts:
        text = part.get("text") if isinstance(part, Mapping) else part
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise ChatTemplateError(
                f"messages[{number}] has a part of type {kind!r:.40}; only text is supported"
            )
        texts.append(text)
    return "\n".join(texts)


def for_template(
    messages: str | Sequence[Message], tools: Sequence[ToolLike] | None, style: ReplyStyle
) -> tuple[Sequence[Message], Sequence[Mapping[str, Any]] | None]:
    """The messages and tools to render; tools that the template ignores move into a message."""
    messages = as_messages(messages)
    if style.template_knows_tools:
        return messages, [_as_mapping(tool) for tool in tools] if tools else None
    is_plain = style.calls is CallStyle.JSON
    plain = [_as_text(message) for message in messages] if is_plain else list(messages)
    if not tools:
        return plain, None
    lines = [_LIST, *(_json(tool.as_mapping()["function"]) for tool in read_tools(tools))]
    text = "\n".join([*lines, _HOW] if is_plain else lines)
    first = plain[0] if plain and isinstance(plain[0], Mapping) else {}
    if first.get("role") == "system" and isinstance(first.get("content"), str):
        return [{**first, "content": f"{first['content']}\n\n{text}"}, *plain[1:]], None
    return [{"role": "system", "content": text}, *plain], None


def _as_mapping(tool: ToolLike) -> Mapping[str, Any]:
    return tool if isinstance(tool, Mapping) else read_tools([tool])[0].as_mapping()


def _as_text(message: Message) -> Message:
    if not isinstance(message, Mapping):
        return message
    if message.get("role") == "tool":
        return {"role": "user", "content": f"Result of the call: {message.get('content') or ''}"}
    calls = message.get("tool_calls")
    if not calls:
        return message
    lines = [text] if (text := message.get("content")) else []
    lines += [_call(call.get("function", call)) for call in calls]
    kept = {name: value for name, value in message.items() if name != "tool_calls"}
    return {**kept, "content": "\n".join(lines)}


def _call(function: Mapping[str, Any]) -> str:
    arguments = function.get("arguments") or {}
    if not isinstance(arguments, str):
        arguments = _json(arguments)
    return f'{{"name": {_json(function.get("name"))}, "arguments": {arguments}}}'


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
