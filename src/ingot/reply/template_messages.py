"""Messages and tools in the form that a model's chat template can render.

Messages in OpenAI's form and tools come in. If the template has no place for tools, the system
message lists them and explains how to call them, and earlier tool calls and their results become
text. If the template renders tool calls but no tools (`CallStyle` is not JSON), only the list is
added.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ingot.reply.style import CallStyle, ReplyStyle
from ingot.reply.tools import read_tools

Message = Mapping[str, Any]

_LIST = "You can call these functions:"
_HOW = (
    "To call a function, answer with nothing but a JSON object on a line of its own, "
    '{"name": <name of the function>, "arguments": <object of its arguments>}, '
    "one line for each call. Otherwise answer in words."
)


def for_template(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None, style: ReplyStyle
) -> tuple[Sequence[Message], Sequence[Mapping[str, Any]] | None]:
    """The messages and tools to render; tools that the template ignores move into a message."""
    if style.template_knows_tools:
        return messages, tools
    is_plain = style.calls is CallStyle.JSON
    plain = [_as_text(message) for message in messages] if is_plain else list(messages)
    if not tools:
        return plain, None
    lines = [_LIST, *(_json(tool.as_mapping()["function"]) for tool in read_tools(tools))]
    text = "\n".join([*lines, _HOW] if is_plain else lines)
    if plain and plain[0].get("role") == "system" and isinstance(plain[0].get("content"), str):
        return [{**plain[0], "content": f"{plain[0]['content']}\n\n{text}"}, *plain[1:]], None
    return [{"role": "system", "content": text}, *plain], None


def _as_text(message: Message) -> Message:
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
