"""Grammars that make a model call tools: valid calls in its own style, and nothing else.

Comes in: a style, tools, and whether and which of them must be called. Goes out: a `Grammar` whose
texts `ReplyParser` reads as calls with arguments that follow the tools' schemas. Reasoning may
come first. Where calling is up to the model, only the calls of `strict` tools are ruled, from
the mark they begin with on, in styles that have one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ingot.errors import ToolError
from ingot.reply.calls import OPENERS
from ingot.reply.style import (
    CALL_BEGIN,
    CALL_END,
    CALL_SEP,
    CALLS_END,
    CHANNEL,
    CONSTRAIN,
    END,
    HERMES_CLOSE,
    MESSAGE,
    MISTRAL_ARGS,
    START,
    CallStyle,
    ReplyStyle,
)
from ingot.reply.tools import Tool
from ingot.sampling import Grammar

_MOST_CALLS = 16  # without a bound a model at a high temperature can call for ever
# As templates write JSON; free white space would only cost tokens.
_SETTINGS = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@dataclass(frozen=True, slots=True)
class NamedTool:
    """The one tool that must be called."""

    name: str


ToolChoice = Literal["none", "auto", "required"] | NamedTool


def tool_grammar(
    style: ReplyStyle,
    tools: Sequence[Tool],
    choice: ToolChoice = "auto",
    *,
    parallel: bool = True,
    begins_in_reasoning: bool = False,
) -> Grammar | None:
    """The grammar of a text that calls tools as it must; None if there is nothing to rule."""
    if choice == "none" or (choice == "auto" and not any(tool.strict for tool in tools)):
        return None
    if isinstance(choice, NamedTool):
        tools, parallel = [tool for tool in tools if tool.name == choice.name], False
        if not tools:
            raise ToolError(f"the tool to be called, {choice.name!r}, is not one of the tools")
    if not tools:
        raise ToolError("a tool must be called, but there are none; give tools")
    frame = _frame(style)
    functions = _functions(style, tools, free=choice == "auto")
    calls = " ".join([frame.before, "call", *_more(frame.between, "call", parallel), frame.behind])
    if choice == "auto":
        if frame.opener is None:
            return None
        return Grammar.lark(f"start: {calls}\n{functions}").after(frame.opener)
    opened = calls if frame.opener is None else f"{_mark(style, frame.opener)} {calls}"
    again = _more(frame.between_marks, opened, parallel)
    reasoning = _reasoning(style, begins_in_reasoning)
    start = " ".join([*(["reasoning"] if reasoning else []), opened, *again])
    return Grammar.lark("\n".join([f"start: {start}", *reasoning, functions]))


@dataclass(frozen=True, slots=True)
class _Frame:
    """What stands around calls, in Lark; None between calls where there is only one."""

    opener: str | None = None  # the mark of a style, as it is
    before: str = ""
    between: str | None = None
    behind: str = ""
    between_marks: str | None = None  # where each call has its own mark


def _frame(style: ReplyStyle) -> _Frame:
    opener = OPENERS[style.calls][0] if OPENERS[style.calls] else None
    match style.calls:
        case CallStyle.HERMES:
            close = _text("\n") + " " + _mark(style, HERMES_CLOSE)
            return _Frame(opener, _text("\n"), behind=close, between_marks=_text("\n"))
        case CallStyle.MISTRAL | CallStyle.GRANITE:
            return _Frame(opener, '" "? "["', between=_text(", "), behind=_text("]"))
        case CallStyle.MISTRAL_ARGS:
            return _Frame(opener, between_marks="")
        case CallStyle.DEEPSEEK | CallStyle.DEEPSEEK_V31:
            begin, end = _mark(style, CALL_BEGIN), _mark(style, CALL_END)
            line = _text("\n") if style.calls is CallStyle.DEEPSEEK else ""
            behind = f"{end} {_mark(style, CALLS_END)}"
            return _Frame(opener, begin, between=f"{end} {line} {begin}", behind=behind)
        case CallStyle.HARMONY:
            return _Frame(before=_mark(style, CHANNEL))
        case CallStyle.LLAMA3:  # it makes one call at a time
            return _Frame()
        case CallStyle.JSON:
            return _Frame(between=_text("\n"))


def _functions(style: ReplyStyle, tools: Sequence[Tool], *, free: bool) -> str:
    """The rule `call`: one of the tools, and its arguments."""
    lines = ["call: " + " | ".join(f"call{number}" for number in range(len(tools)))]
    for number, tool in enumerate(tools):
        before, behind = _around_arguments(style, tool.name)
        schema = {"type": "object"} if free and not tool.strict else _schema(tool)
        lines.append(f"call{number}: {before} arguments{number} {behind}")
        lines.append(f"arguments{number}: %json {json.dumps(schema)}")
    return "\n".join(lines)


def _around_arguments(style: ReplyStyle, name: str) -> tuple[str, str]:
    match style.calls:
        case CallStyle.MISTRAL_ARGS:
            return f"{_text(name)} {_mark(style, MISTRAL_ARGS)}", ""
        case CallStyle.DEEPSEEK:
            sep = f"{_text('function')} {_mark(style, CALL_SEP)}"
            return " ".join([sep, _text(f"{name}\n```json\n")]), _text("\n```")
        case CallStyle.DEEPSEEK_V31:
            return f"{_text(name)} {_mark(style, CALL_SEP)}", ""
        case CallStyle.HARMONY:
            form = f"{_mark(style, CONSTRAIN)} {_text('json')} {_mark(style, MESSAGE)}"
            return f"{_text(f'commentary to=functions.{name} ')} {form}", ""
    key = "parameters" if style.calls is CallStyle.LLAMA3 else "arguments"
    quoted = json.dumps(name, ensure_ascii=False)
    return _text(f'{{"name": {quoted}, "{key}": '), _text("}")


def _schema(tool: Tool) -> Mapping[str, Any]:
    nothing = {"properties": {}, "additionalProperties": False}
    return {"type": "object", **(tool.parameters or nothing), "x-guidance": _SETTINGS}


def _reasoning(style: ReplyStyle, is_begun: bool) -> list[str]:
    """The rules of what may come before calls; none if nothing may."""
    if style.calls is CallStyle.HARMONY:
        opening = f"{_mark(style, CHANNEL)} {_text('analysis')} {_mark(style, MESSAGE)}"
        closing = f"{_mark(style, START)} {_text('assistant')}"
        end = END
    elif style.thinking is not None:
        opening = "" if is_begun else _mark(style, style.thinking.open)
        closing, end = "/\\n{0,2}/", style.thinking.close
    else:
        return []
    mark = "?" if opening else ""
    if end in style.controls:
        thoughts = f"thoughts: TEXT {_mark(style, end)}"
    else:
        thoughts = f"thoughts[lazy]: TEXT {_text(end)}"
    return [f"reasoning: ({opening} thoughts {closing}){mark}", thoughts, "TEXT: /(?s:.*)/"]


def _more(between: str | None, what: str, parallel: bool) -> list[str]:
    if between is None or not parallel:
        return []
    return [f"({between} {what}){{0,{_MOST_CALLS - 1}}}"]


def _mark(style: ReplyStyle, mark: str) -> str:
    """A mark in Lark: its token, or its text where it has none of its own."""
    return f"<[{style.controls[mark]}]>" if mark in style.controls else _text(mark)


def _text(text: str) -> str:
    return json.dumps(text)
