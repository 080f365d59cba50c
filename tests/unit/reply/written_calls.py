"""Replies as the styles write them, for the tests of this folder."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ingot.reply import CallStyle, Marks, Reply, ReplyStyle, read_tools

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"type": "integer", "minimum": 1, "maximum": 10},
        "unit": {"enum": ["C", "F"]},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = read_tools(
    [
        {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}},
        {"type": "function", "function": {"name": "now"}},
        {"name": "söka-på", "parameters": {"type": "object"}},
    ]
)
THINK = Marks("<think>", "</think>")


@dataclass(frozen=True)
class Called:
    name: str
    arguments: dict[str, Any]


def as_text(value: Any) -> str:
    """A value as forms with tags write it."""
    return value if isinstance(value, str) else json.dumps(value)


def write_calls(calls: Sequence[Called], style: ReplyStyle) -> str:
    """The calls as a model of a style writes them."""
    named = [(call.name, json.dumps(call.arguments)) for call in calls]
    objects = [f'{{"name": {json.dumps(n)}, "arguments": {text}}}' for n, text in named]
    match style.calls:
        case CallStyle.HERMES:
            return "\n".join(f"<tool_call>\n{text}\n</tool_call>" for text in objects)
        case CallStyle.LLAMA3:
            return "; ".join(text.replace('"arguments"', '"parameters"', 1) for text in objects)
        case CallStyle.MISTRAL:
            return f"[TOOL_CALLS] [{', '.join(objects)}]"
        case CallStyle.GRANITE:
            return f"<|tool_call|>[{', '.join(objects)}]"
        case CallStyle.MISTRAL_ARGS:
            return "".join(f"[TOOL_CALLS]{name}[ARGS]{text}" for name, text in named)
        case CallStyle.DEEPSEEK:
            body = "\n".join(
                f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{text}\n```<｜tool▁call▁end｜>"
                for name, text in named
            )
            return f"<｜tool▁calls▁begin｜>{body}<｜tool▁calls▁end｜>"
        case CallStyle.DEEPSEEK_V31:
            body = "".join(
                f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{text}<｜tool▁call▁end｜>"
                for name, text in named
            )
            return f"<｜tool▁calls▁begin｜>{body}<｜tool▁calls▁end｜>"
        case CallStyle.QWEN_XML:
            return "\n".join(
                f"<tool_call>\n<function={call.name}>\n"
                + "".join(
                    f"<parameter={key}>\n{as_text(value)}\n</parameter>\n"
                    for key, value in call.arguments.items()
                )
                + "</function>\n</tool_call>"
                for call in calls
            )
        case CallStyle.GLM:
            return "\n".join(
                f"<tool_call>{call.name}\n"
                + "".join(
                    f"<arg_key>{key}</arg_key>\n<arg_value>{as_text(value)}</arg_value>\n"
                    for key, value in call.arguments.items()
                )
                + "</tool_call>"
                for call in calls
            )
        case CallStyle.MINIMAX:
            body = "".join(
                f'<invoke name="{call.name}">\n'
                + "".join(
                    f'<parameter name="{key}">{as_text(value)}</parameter>\n'
                    for key, value in call.arguments.items()
                )
                + "</invoke>\n"
                for call in calls
            )
            return f"<minimax:tool_call>\n{body}</minimax:tool_call>"
        case CallStyle.KIMI:
            body = "".join(
                f"<|tool_call_begin|>functions.{name}:{number}<|tool_call_argument_begin|>{text}"
                "<|tool_call_end|>"
                for number, (name, text) in enumerate(named)
            )
            return f"<|tool_calls_section_begin|>{body}<|tool_calls_section_end|>"
        case CallStyle.HARMONY:
            kind = "<|constrain|>json<|message|>"
            return "<|start|>assistant".join(
                f"<|channel|>commentary to=functions.{name} {kind}{text}<|call|>"
                for name, text in named
            )
        case CallStyle.JSON:
            return "\n".join(objects)


def parts_of(reply: Reply) -> tuple[str, str, list[tuple[str, str]]]:
    """A reply without the random names of its calls."""
    calls = [(call.name, call.arguments) for call in reply.tool_calls]
    return reply.content, reply.reasoning, calls
