"""Grammars of replies: required tool calls, and answers with a grammar.

In: a style, tools, a tool choice, and the grammar of the answer. Out: a `Grammar` of whole texts.
`ReplyParser` reads such a text as calls in the style of the model, with arguments that follow the
schemas of the tools, or as an answer that follows its grammar. Reasoning may come first. If the
model is free to call tools and to answer, only calls of `strict` tools are constrained, after the
marker that opens them, in styles that have one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ingot.errors import ToolError
from ingot.reply.lark_parts import json_by, marker, text
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
from ingot.reply.tagged_arguments import GLM_TAGS, MINIMAX_TAGS, QWEN_TAGS
from ingot.reply.tagged_grammar import TaggedCall
from ingot.reply.tool_call_reader import own_opener
from ingot.reply.tools import Tool
from ingot.sampling import Grammar
from ingot.sampling.grammar import GrammarKind
from ingot.sampling.grammar.schema_defaults import bounded, closed

_MOST_CALLS = 16  # without a bound, a model at a high temperature can call for ever
_NUMBER = "0|[1-9][0-9]?[0-9]?"  # of a call in a conversation
_NOTHING = {"properties": {}, "additionalProperties": False}
_TAGS = {
    CallStyle.QWEN_XML: QWEN_TAGS,
    CallStyle.GLM: GLM_TAGS,
    CallStyle.MINIMAX: MINIMAX_TAGS,
}


@dataclass(frozen=True, slots=True)
class NamedTool:
    """A tool choice: this tool must be called."""

    name: str


ToolChoice = Literal["none", "auto", "required"] | NamedTool


def tool_grammar(
    style: ReplyStyle,
    tools: Sequence[Tool],
    choice: ToolChoice = "auto",
    *,
    parallel: bool = True,
    begins_in_reasoning: bool = False,
    is_past_reasoning: bool = False,
    answer: Grammar | None = None,
) -> Grammar | None:
    """The grammar of a text that follows the tool choice; None if nothing is constrained.

    The prompt may have opened the reasoning, or closed it already. `answer` is the grammar of an
    answer without calls.
    """
    if is_past_reasoning:
        style = replace(style, thinking=None)
    if isinstance(choice, NamedTool):
        tools, parallel = [tool for tool in tools if tool.name == choice.name], False
        if not tools:
            raise ToolError(f"tool_choice names {choice.name!r}, which is not one of the tools")
    elif choice == "required" and not tools:
        raise ToolError("tool_choice requires a tool call, but there are no tools; pass tools")
    is_free = choice in ("none", "auto")
    before = _reasoning(style, begins_in_reasoning)
    if is_free and answer is not None:
        if choice == "none" or not tools or answer.kind is not GrammarKind.JSON_SCHEMA:
            return answer.preceded_by(_answer_begun(style, before))
        content = [*_answer_header(style), json_by(json.loads(answer.source))]
        rules = [f"start: calls | {' '.join(content)}", _calls(style, tools, parallel, free=True)]
        return Grammar.lark("\n".join(rules)).preceded_by(before)
    if not is_free:
        rules = ["start: calls", _calls(style, tools, parallel)]
        return Grammar.lark("\n".join(rules)).preceded_by(before)
    opener = _frame(style).opener
    if choice == "none" or opener is None or not any(tool.strict for tool in tools):
        return None
    rules = ["start: within", _calls(style, tools, parallel, free=True)]
    return Grammar.lark("\n".join(rules)).after(opener)


def unenforced(style: ReplyStyle, tools: Sequence[Tool], choice: ToolChoice) -> str | None:
    """What to tell a caller whose strict tools cannot be enforced; None if they can."""
    strict = [tool.name for tool in tools if tool.strict]
    if choice != "auto" or not strict or _frame(style).opener is not None:
        return None
    return (
        f"'strict' of the tool {strict[0]!r} was ignored: in the call format of this model, calls "
        "have no opening marker. Use tool_choice to enforce the schema."
    )


@dataclass(frozen=True, slots=True)
class _Frame:
    """The text around calls, in Lark; None between calls if there is only one."""

    opener: str | None = None  # the marker of a style, not in Lark
    before: str = ""
    between: str | None = None
    after: str = ""
    between_markers: str | None = None  # if each call has its own marker


def _frame(style: ReplyStyle) -> _Frame:
    opener = own_opener(style.calls)
    match style.calls:
        case CallStyle.HERMES:
            close = text("\n") + " " + marker(style, HERMES_CLOSE)
            return _Frame(opener, text("\n"), after=close, between_markers=text("\n"))
        case CallStyle.QWEN_XML:
            close = marker(style, HERMES_CLOSE)
            return _Frame(opener, text("\n"), after=close, between_markers=text("\n"))
        case CallStyle.GLM:
            return _Frame(opener, after=marker(style, HERMES_CLOSE), between_markers=text("\n"))
        case CallStyle.MINIMAX:
            close = marker(style, MINIMAX_CLOSE)
            return _Frame(opener, text("\n"), between="", after=close)
        case CallStyle.KIMI:
            begin, end = marker(style, KIMI_BEGIN), marker(style, KIMI_END)
            after = f"{end} {marker(style, SECTION_END)}"
            return _Frame(opener, begin, between=f"{end} {begin}", after=after)
        case CallStyle.MISTRAL | CallStyle.GRANITE:
            return _Frame(opener, '" "? "["', between=text(", "), after=text("]"))
        case CallStyle.MISTRAL_ARGS:
            return _Frame(opener, between_markers="")
        case CallStyle.DEEPSEEK | CallStyle.DEEPSEEK_V31:
            begin, end = marker(style, CALL_BEGIN), marker(style, CALL_END)
            line = text("\n") if style.calls is CallStyle.DEEPSEEK else ""
            after = f"{end} {marker(style, CALLS_END)}"
            return _Frame(opener, begin, between=f"{end} {line} {begin}", after=after)
        case CallStyle.HARMONY:
            return _Frame(before=marker(style, CHANNEL))
        case CallStyle.LLAMA3:  # one call per reply
            return _Frame()
        case CallStyle.JSON:
            return _Frame(between=text("\n"))


def _calls(style: ReplyStyle, tools: Sequence[Tool], parallel: bool, *, free: bool = False) -> str:
    """The rules `calls`, `within` (calls after their marker) and `call` (one of the tools).

    If `free`, arguments follow a schema only if their tool is strict.
    """
    frame = _frame(style)
    opened = "within" if frame.opener is None else f"{marker(style, frame.opener)} within"
    within = [frame.before, "call", *_more(frame.between, "call", parallel), frame.after]
    lines = [
        " ".join(["calls:", opened, *_more(frame.between_markers, opened, parallel)]),
        " ".join(["within:", *within]),
        "call: " + " | ".join(f"call{number}" for number in range(len(tools))),
    ]
    for number, tool in enumerate(tools):
        schema = None if free and not tool.strict else _arguments_schema(tool)
        if style.calls in _TAGS:
            lines += TaggedCall(style, _TAGS[style.calls], number, tool.name).rules(schema)
            continue
        before, after = _around_arguments(style, tool.name)
        lines.append(f"call{number}: {before} arguments{number} {after}")
        lines.append(f"arguments{number}: {json_by(bounded({'type': 'object', **(schema or {})}))}")
    return "\n".join(lines)


def _arguments_schema(tool: Tool) -> Mapping[str, object]:
    """The schema of a tool's arguments, without undeclared keys."""
    try:
        return closed(tool.parameters or _NOTHING)
    except RecursionError:
        raise ToolError(f"the parameters of tool {tool.name!r} are nested too deeply") from None


def _around_arguments(style: ReplyStyle, name: str) -> tuple[str, str]:
    match style.calls:
        case CallStyle.MISTRAL_ARGS:
            return f"{text(name)} {marker(style, MISTRAL_ARGS)}", ""
        case CallStyle.DEEPSEEK:
            sep = f"{text('function')} {marker(style, CALL_SEP)}"
            return " ".join([sep, text(f"{name}\n```json\n")]), text("\n```")
        case CallStyle.DEEPSEEK_V31:
            return f"{text(name)} {marker(style, CALL_SEP)}", ""
        case CallStyle.KIMI:
            number = f"/{_NUMBER}/ {marker(style, KIMI_ARGUMENTS)}"
            return f"{text(f'functions.{name}:')} {number}", ""
        case CallStyle.HARMONY:
            form = f"{marker(style, CONSTRAIN)} {text('json')} {marker(style, MESSAGE)}"
            return f"{text(f'commentary to=functions.{name} ')} {form}", ""
    key = "parameters" if style.calls is CallStyle.LLAMA3 else "arguments"
    quoted = json.dumps(name, ensure_ascii=False)
    return text(f'{{"name": {quoted}, "{key}": '), text("}")


def _reasoning(style: ReplyStyle, is_begun: bool) -> str:
    """The rules of reasoning, beginning with `before`; empty if the style has none."""
    if style.calls is CallStyle.HARMONY:
        opening = f"{marker(style, CHANNEL)} {text('analysis')} {marker(style, MESSAGE)}"
        closing = f"{marker(style, START)} {text('assistant')}"
        end = END
    elif style.thinking is not None:
        opening = "" if is_begun else marker(style, style.thinking.open)
        closing, end = "/\\n{0,2}/", style.thinking.close
    else:
        return ""
    thoughts = f"thoughts[lazy]: TEXT {text(end)}"
    if end in style.controls:
        thoughts = f"thoughts: TEXT {marker(style, end)}"
    optional = "?" if opening else ""
    before = f"before: ({opening} thoughts {closing}){optional}"
    return "\n".join([before, thoughts, "TEXT: /(?s:.*)/"])


def _answer_begun(style: ReplyStyle, reasoning: str) -> str:
    """The same rules, followed by the header of an answer."""
    rule, *rules = reasoning.split("\n")
    return "\n".join([" ".join([rule, *_answer_header(style)]), *rules])


def _answer_header(style: ReplyStyle) -> list[str]:
    if style.calls is not CallStyle.HARMONY:
        return []
    return [marker(style, CHANNEL), text("final"), marker(style, MESSAGE)]


def _more(between: str | None, what: str, parallel: bool) -> list[str]:
    if between is None or not parallel:
        return []
    return [f"({between} {what}){{0,{_MOST_CALLS - 1}}}"]
