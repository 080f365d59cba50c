"""Grammars of replies: calls that must come, and answers that must have a form.

Comes in: a style, tools, whether and which of them must be called, and the grammar of an answer.
Goes out: a `Grammar` of whole texts. What `ReplyParser` reads in them is calls in the model's own
style, with arguments that follow the tools' schemas, or an answer of that form. Reasoning may come
first. Where calling is up to the model and the answer is free, only calls of `strict` tools are
ruled, from the mark they begin with on, in styles that have one.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ingot.errors import ToolError
from ingot.reply.calls import OPENERS
from ingot.reply.lark import json_by, mark, text
from ingot.reply.style import (
    CALL_BEGIN,
    CALL_END,
    CALL_SEP,
    CALLS_END,
    CHANNEL,
    CONSTRAIN,
    END,
    HERMES_CLOSE,
    KIMI_ARGUMENTS,
    KIMI_BEGIN,
    KIMI_END,
    MESSAGE,
    MINIMAX_CLOSE,
    MISTRAL_ARGS,
    SECTION_END,
    START,
    CallStyle,
    ReplyStyle,
)
from ingot.reply.tagged import GLM_TAGS, MINIMAX_TAGS, QWEN_TAGS
from ingot.reply.tagged_grammar import TaggedCall
from ingot.reply.tools import Tool
from ingot.sampling import Grammar
from ingot.sampling.grammar import GrammarKind

_MOST_CALLS = 16  # without a bound a model at a high temperature can call for ever
_NUMBER = "0|[1-9][0-9]?[0-9]?"  # of a call in a conversation
_NOTHING = {"properties": {}, "additionalProperties": False}
_TAGS = {
    CallStyle.QWEN_XML: QWEN_TAGS,
    CallStyle.GLM: GLM_TAGS,
    CallStyle.MINIMAX: MINIMAX_TAGS,
}


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
            return answer.preceded_by(_answer_begun(style, before))
        said = [*_answer_header(style), json_by(json.loads(answer.source))]
        rules = [f"start: calls | {' '.join(said)}", _calls(style, tools, parallel, free=True)]
        return Grammar.lark("\n".join(rules)).preceded_by(before)
    if not is_free:
        rules = ["start: calls", _calls(style, tools, parallel)]
        return Grammar.lark("\n".join(rules)).preceded_by(before)
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
            close = text("\n") + " " + mark(style, HERMES_CLOSE)
            return _Frame(opener, text("\n"), behind=close, between_marks=text("\n"))
        case CallStyle.QWEN_XML:
            close = mark(style, HERMES_CLOSE)
            return _Frame(opener, text("\n"), behind=close, between_marks=text("\n"))
        case CallStyle.GLM:
            return _Frame(opener, behind=mark(style, HERMES_CLOSE), between_marks=text("\n"))
        case CallStyle.MINIMAX:
            close = mark(style, MINIMAX_CLOSE)
            return _Frame(opener, text("\n"), between="", behind=close)
        case CallStyle.KIMI:
            begin, end = mark(style, KIMI_BEGIN), mark(style, KIMI_END)
            behind = f"{end} {mark(style, SECTION_END)}"
            return _Frame(opener, begin, between=f"{end} {begin}", behind=behind)
        case CallStyle.MISTRAL | CallStyle.GRANITE:
            return _Frame(opener, '" "? "["', between=text(", "), behind=text("]"))
        case CallStyle.MISTRAL_ARGS:
            return _Frame(opener, between_marks="")
        case CallStyle.DEEPSEEK | CallStyle.DEEPSEEK_V31:
            begin, end = mark(style, CALL_BEGIN), mark(style, CALL_END)
            line = text("\n") if style.calls is CallStyle.DEEPSEEK else ""
            behind = f"{end} {mark(style, CALLS_END)}"
            return _Frame(opener, begin, between=f"{end} {line} {begin}", behind=behind)
        case CallStyle.HARMONY:
            return _Frame(before=mark(style, CHANNEL))
        case CallStyle.LLAMA3:  # it makes one call at a time
            return _Frame()
        case CallStyle.JSON:
            return _Frame(between=text("\n"))


def _calls(style: ReplyStyle, tools: Sequence[Tool], parallel: bool, *, free: bool = False) -> str:
    """The rules `calls`; `within`, what stands behind their mark; and `call`, one of the tools.

    `free` arguments follow a schema only if their tool is strict.
    """
    frame = _frame(style)
    opened = "within" if frame.opener is None else f"{mark(style, frame.opener)} within"
    within = [frame.before, "call", *_more(frame.between, "call", parallel), frame.behind]
    lines = [
        " ".join(["calls:", opened, *_more(frame.between_marks, opened, parallel)]),
        " ".join(["within:", *within]),
        "call: " + " | ".join(f"call{number}" for number in range(len(tools))),
    ]
    for number, tool in enumerate(tools):
        schema = None if free and not tool.strict else tool.parameters or _NOTHING
        if style.calls in _TAGS:
            lines += TaggedCall(style, _TAGS[style.calls], number, tool.name).rules(schema)
            continue
        before, behind = _around_arguments(style, tool.name)
        lines.append(f"call{number}: {before} arguments{number} {behind}")
        lines.append(f"arguments{number}: {json_by({'type': 'object', **(schema or {})})}")
    return "\n".join(lines)


def _around_arguments(style: ReplyStyle, name: str) -> tuple[str, str]:
    match style.calls:
        case CallStyle.MISTRAL_ARGS:
            return f"{text(name)} {mark(style, MISTRAL_ARGS)}", ""
        case CallStyle.DEEPSEEK:
            sep = f"{text('function')} {mark(style, CALL_SEP)}"
            return " ".join([sep, text(f"{name}\n```json\n")]), text("\n```")
        case CallStyle.DEEPSEEK_V31:
            return f"{text(name)} {mark(style, CALL_SEP)}", ""
        case CallStyle.KIMI:
            number = f"/{_NUMBER}/ {mark(style, KIMI_ARGUMENTS)}"
            return f"{text(f'functions.{name}:')} {number}", ""
        case CallStyle.HARMONY:
            form = f"{mark(style, CONSTRAIN)} {text('json')} {mark(style, MESSAGE)}"
            return f"{text(f'commentary to=functions.{name} ')} {form}", ""
    key = "parameters" if style.calls is CallStyle.LLAMA3 else "arguments"
    quoted = json.dumps(name, ensure_ascii=False)
    return text(f'{{"name": {quoted}, "{key}": '), text("}")


def _reasoning(style: ReplyStyle, is_begun: bool) -> str:
    """The rules of what may come first, from `before` on; nothing if nothing may."""
    if style.calls is CallStyle.HARMONY:
        opening = f"{mark(style, CHANNEL)} {text('analysis')} {mark(style, MESSAGE)}"
        closing = f"{mark(style, START)} {text('assistant')}"
        end = END
    elif style.thinking is not None:
        opening = "" if is_begun else mark(style, style.thinking.open)
        closing, end = "/\\n{0,2}/", style.thinking.close
    else:
        return ""
    thoughts = f"thoughts[lazy]: TEXT {text(end)}"
    if end in style.controls:
        thoughts = f"thoughts: TEXT {mark(style, end)}"
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
    return [mark(style, CHANNEL), text("final"), mark(style, MESSAGE)]


def _more(between: str | None, what: str, parallel: bool) -> list[str]:
    if between is None or not parallel:
        return []
    return [f"({between} {what}){{0,{_MOST_CALLS - 1}}}"]
