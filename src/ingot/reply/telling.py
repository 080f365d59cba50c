"""Tools for models whose chat templates know nothing of them: all is said in plain messages.

Comes in: messages in OpenAI's form, and tools. Goes out: messages whose system message lists the
tools and says how to call them; calls and answers of tools become text. Where the template
writes calls itself (`CallStyle` is not JSON), only the list is missing.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ingot.reply.style import CallStyle, ReplyStyle
from ingot.reply.tools import Tool

Message = Mapping[str, Any]

_LIST = "You can call these functions:"
_HOW = (
    "To call a function, answer with nothing but a JSON object on a line of its own, "
    '{"name": <name of the function>, "arguments": <object of its arguments>}, '
    "one line for each call. Otherwise answer in words."
)


def with_tools_told(
    messages: Sequence[Message], tools: Sequence[Tool], style: ReplyStyle
) -> list[Message]:
    """The messages as a template that knows no tools can write them."""
    if style.template_knows_tools:
        return list(messages)
    is_plain = style.calls is CallStyle.JSON
    told = [_as_text(message) for message in messages] if is_plain else list(messages)
    if not tools:
        return told
    lines = [_LIST, *(_json(tool.as_mapping()["function"]) for tool in tools)]
    text = "\n".join([*lines, _HOW] if is_plain else lines)
    if told and told[0].get("role") == "system" and isinstance(told[0].get("content"), str):
        return [{**told[0], "content": f"{told[0]['content']}\n\n{text}"}, *told[1:]]
    return [{"role": "system", "content": text}, *told]


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
