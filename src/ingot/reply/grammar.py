"""Grammars of replies: calls that must come, and answers that must have a form.

Comes in: a style, tools, whether and which of them must be called, and the grammar of an answer.
Goes out: a `Grammar` of whole texts. What `ReplyParser` reads in them is calls in the model's own
style, with arguments that follow the tools' schemas, or an answer of that form. Reasoning may come
first. Where calling is up to the model and the answer is free, only calls of `strict` tools are
ruled, from the mark they begin with on, in styles that have one.
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
from ingot.sampling.grammar import GrammarKind

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
    answer: Grammar | None = None,
) -> Grammar | None:
    """The grammar of a text that calls tools as it must; None if there is nothing to rule.

    `answer` rules what is said in place of calls.
    """
    if isinstance(choice, NamedTool):
        tools, parallel = [tool for tool in tools if tool.name == choice.name], False
        if not tools:
            raise ToolError(f"the tool to be called, {choice.name!r}, is not one of the tools")
    elif choice == "required" and not tools:
        raise ToolError("a tool must be called, but there are none; give tools")
    is_free = choice in ("none", "auto")
    before = _reasoning(style, begins_in_reasoning)
    if is_free and answer is not None:
        if choice == "none" or not tools or answer.kind is not GrammarKind.JSON_SCHEMA:
            return answer.behind(_answer_begun(style, before))
        said = [*_answer_header(style), f"%json {_json(json.loads(answer.source))}"]
        rules = [f"start: calls | {' '.join(said)}", _calls(style, tools, parallel, free=True)]
        return Grammar.lark("\n".join(rules)).behind(before)
    if not is_free:
        rules = ["start: calls", _calls(style, tools, parallel)]
        return Grammar.lark("\n".join(rules)).behind(before)
    opener = _frame(style).opener
    if choice == "none" or opener is None or not any(tool.strict for tool in tools):
        return None
    rules = ["start: within", _calls(style, tools, parallel, free=True)]
    return Grammar.lark("\n".join(rules)).after(opener)


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


def _calls(style: ReplyStyle, tools: Sequence[Tool], parallel: bool, *, free: bool = False) -> str:
    """The rules `calls`; `within`, what stands behind their mark; and `call`, one of the tools.

    `free` arguments follow a schema only if their tool is strict.
    """
    frame = _frame(style)
    opened = "within" if frame.opener is None else f"{_mark(style, frame.opener)} within"
    within = [frame.before, "call", *_more(frame.between, "call", parallel), frame.behind]
    lines = [
        " ".join(["calls:", opened, *_more(frame.between_marks, opened, parallel)]),
        " ".join(["within:", *within]),
        "call: " + " | ".join(f"call{number}" for number in range(len(tools))),
    ]
    for number, tool in enumerate(tools):
        before, behind = _around_arguments(style, tool.name)
        nothing = {"properties": {}, "additionalProperties": False}
        schema = {} if free and not tool.strict else tool.parameters or nothing
        lines.append(f"call{number}: {before} arguments{number} {behind}")
        lines.append(f"arguments{number}: %json {_json({'type': 'object', **schema})}")
    return "\n".join(lines)


def _json(schema: Any) -> str:
    """A schema for Lark, of JSON without free white space."""
    if not isinstance(schema, Mapping):  # True is any JSON, False none
        schema = {} if schema else {"not": {}}
    return json.dumps({**schema, "x-guidance": _SETTINGS})


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


def _reasoning(style: ReplyStyle, is_begun: bool) -> str:
    """The rules of what may come first, from `before` on; nothing if nothing may."""
    if style.calls is CallStyle.HARMONY:
        opening = f"{_mark(style, CHANNEL)} {_text('analysis')} {_mark(style, MESSAGE)}"
        closing = f"{_mark(style, START)} {_text('assistant')}"
        end = END
    elif style.thinking is not None:
        opening = "" if is_begun else _mark(style, style.thinking.open)
        closing, end = "/\\n{0,2}/", style.thinking.close
    else:
        return ""
    thoughts = f"thoughts[lazy]: TEXT {_text(end)}"
    if end in style.controls:
        thoughts = f"thoughts: TEXT {_mark(style, end)}"
    optional = "?" if opening else ""
    before = f"before: ({opening} thoughts {closing}){optional}"
    return "\n".join([before, thoughts, "TEXT: /(?s:.*)/"])


def _answer_begun(style: ReplyStyle, reasoning: str) -> str:
    """The same with what an answer begins with."""
    rule, *rules = reasoning.split("\n")
    return "\n".join([" ".join([rule, *_answer_header(style)]), *rules])


def _answer_header(style: ReplyStyle) -> list[str]:
    if style.calls is not CallStyle.HARMONY:
        return []
    return [_mark(style, CHANNEL), _text("final"), _mark(style, MESSAGE)]


def _more(between: str | None, what: str, parallel: bool) -> list[str]:
    if between is None or not parallel:
        return []
    return [f"({between} {what}){{0,{_MOST_CALLS - 1}}}"]


def _mark(style: ReplyStyle, mark: str) -> str:
    """A mark in Lark: its token, or its text where it has none of its own."""
    return f"<[{style.controls[mark]}]>" if mark in style.controls else _text(mark)


def _text(text: str) -> str:
    return json.dumps(text)
