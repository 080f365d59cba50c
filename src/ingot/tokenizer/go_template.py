"""Translate a chat template of ollama, written for Go's text/template, to Jinja.

The text of the template comes in, Jinja for `ChatTemplate` goes out. ollama has two kinds. A new
one ranges over `.Messages`. An old one is one exchange (`.System`, `.Prompt`, `.Response`) and is
rendered once for each; in the last one, what comes after the response is left out.

Dot is a Jinja variable that `range` and `with` change. Go's variables are attributes of a
namespace, because an assignment in a Jinja loop is lost after it. Whatever has no counterpart
(`printf`, `define`, functions of later versions) raises `ChatTemplateError`.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ingot.errors import ChatTemplateError

_MAX_LENGTH = 1 << 16
_MAX_DEPTH = 40
_ACTION = re.compile(r"""\{\{((?:"(?:[^"\\]|\\.)*"|`[^`]*`|[^"`}]|\}(?!\}))*)\}\}""", re.S)
_TOKEN = re.compile(
    r'\s*(?:(?P<text>"(?:[^"\\\n]|\\.)*"|`[^`]*`)|(?P<number>-?\d+(?:\.\d+)?)'
    r"|(?P<path>\$?[A-Za-z_0-9]*(?:\.[A-Za-z_][A-Za-z_0-9]*)+|\$[A-Za-z_0-9]*|\.)"
    r"|(?P<word>[A-Za-z_]\w*)|(?P<sign>:=|=|\(|\)|\||,))"
)

# What the fields of ollama's messages and tools are called in chat templates.
_FIELDS: Final = MappingProxyType(
    {
        "ToolCalls": "tool_calls",
        "ToolName": "name",
        "ToolCallID": "tool_call_id",
        "Thinking": "reasoning_content",
    }
)
_ROOT: Final = MappingProxyType(
    {
        "System": "go.system",
        "Messages": "messages",
        "Tools": "(tools or [])",
        "Prompt": "go.prompt",
        "Response": "go.response",
        "Suffix": "''",
        "Think": "(enable_thinking is defined and enable_thinking)",
        "IsThinkSet": "(enable_thinking is defined)",
        "ThinkLevel": "(reasoning_effort if reasoning_effort is defined else '')",
    }
)
_TEXTS = frozenset({"System", "Prompt", "Response", "Content", "Role"})
_COMPARISONS: Final = MappingProxyType({"ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="})

_SYSTEM = """\
{%- set go = namespace(system='', prompt='', response='', last=false) -%}
{%- for message in messages if message.role == 'system' -%}
{%- set go.system = go.system + ('\\n\\n' if go.system else '') + (CONTENT) -%}
{%- endfor -%}
"""

_EXCHANGES = """\
{%- set go.system = '' -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- if go.prompt or go.response -%}{{- exchange() -}}{%- set go.prompt = '' -%}
{%- set go.response = '' -%}{%- endif -%}
{%- set go.system = (CONTENT) -%}
{%- elif message.role == 'user' -%}
{%- if go.response -%}{{- exchange() -}}{%- set go.system = '' -%}
{%- set go.response = '' -%}{%- endif -%}
{%- set go.prompt = (CONTENT) -%}
{%- elif message.role == 'assistant' -%}
{%- set go.response = (CONTENT) -%}
{%- endif -%}
{%- endfor -%}
{%- set go.last = true -%}
{{- exchange() -}}
"""


@dataclass(frozen=True, slots=True)
class _Action:
    """What stands between two braces."""

    words: str
    line: int


def jinja_from_go(source: str) -> str:
    """The Jinja template that renders the same prompts."""
    if len(source) > _MAX_LENGTH:
        raise ChatTemplateError(f"it has more than {_MAX_LENGTH} characters")
    by_messages = bool(re.search(r"\.Messages\b", source))
    body = _Translation(by_messages=by_messages).translate(_pieces(source))
    begin = _with_content(_SYSTEM)
    if by_messages:
        return begin + body
    macro = f"{{%- macro exchange() -%}}{body}{{%- endmacro -%}}"
    return begin + macro + _with_content(_EXCHANGES)


def _with_content(template: str) -> str:
    return template.replace("(CONTENT)", _content("message"))


def _content(message: str) -> str:
    """The text of a message, which may be in parts."""
    parts = f"({message}.content or []) | map(attribute='text') | join"
    return f"({message}.content if {message}.content is string else ({parts}))"


def _pieces(source: str) -> list[str | _Action]:
    """Texts and actions in turn; white space is trimmed where the braces say so."""
    pieces: list[str | _Action] = []
    end, trims = 0, False
    while (start := source.find("{{", end)) >= 0:
        line = source.count("\n", 0, start) + 1
        match = _ACTION.match(source, start)
        if match is None:
            raise ChatTemplateError("an action has no end", line=line)
        words = match[1]
        text = source[end:start].lstrip() if trims else source[end:start]
        pieces.append(text.rstrip() if re.match(r"-\s", words) else text)
        trims, end = re.search(r"\s-\Z", words) is not None, match.end()
        words = words.removeprefix("-").removesuffix("-" if trims else "").strip()
        if not words.startswith("/*"):
            pieces.append(_Action(words, line))
    pieces.append(source[end:].lstrip() if trims else source[end:])
    return pieces


class _Translation:
    """The state of one translation: which blocks are open, and what dot is in each."""

    def __init__(self, *, by_messages: bool) -> None:
        self._by_messages = by_messages
        self._dots = ["$"]
        self._ends: list[str] = []
        self._cut = False  # the response was written; the rest is not part of the last prompt
        self._count = 0
        self._parentheses = 0
        self._tokens: list[tuple[str, str]] = []

    def translate(self, pieces: list[str | _Action]) -> str:
        made = []
        for piece in pieces:
            if isinstance(piece, str):
                made.append(self._shown(_quoted(piece)) if piece else "")
                continue
            try:
                made.append(self._action(piece.words))
                if self._tokens:
                    raise ValueError(f"{self._tokens[0][1]} is not expected")
            except (ValueError, IndexError) as error:
                said = f"{{{{ {piece.words[:80]} }}}}: {error}"
                raise ChatTemplateError(said, line=piece.line) from None
        if self._ends:
            raise ChatTemplateError("a block of the template has no end")
        return "".join(made)

    def _shown(self, expression: str) -> str:
        written = f"{{{{- {expression} -}}}}"
        return f"{{%- if not go.last -%}}{written}{{%- endif -%}}" if self._cut else written

    def _action(self, words: str) -> str:
        self._tokens = _tokens(words)
        kind, first = self._tokens[0]
        if kind == "word" and first in self._STATEMENTS:
            self._tokens.pop(0)
            return self._STATEMENTS[first](self)
        if len(self._tokens) > 1 and self._tokens[1][1] in (":=", "="):
            name = _variable(first)
            del self._tokens[:2]
            return f"{{%- set {name} = {self._pipeline()} -%}}"
        is_text = len(self._tokens) == 1 and first.rpartition(".")[2] in _TEXTS
        value = self._pipeline()
        shown = self._shown(
            value if is_text else f"({value}) if ({value}) is string else ({value}) | tojson"
        )
        self._cut = self._cut or (not self._by_messages and value == _ROOT["Response"])
        return shown

    def _open(self, end: str, dot: str | None = None) -> None:
        if len(self._ends) >= _MAX_DEPTH:
            raise ValueError("too many blocks in one another")
        self._ends.append(end)
        self._dots.append(dot or self._dots[-1])

    def _if(self) -> str:
        condition = self._pipeline()
        self._open("{%- endif -%}")
        return f"{{%- if {condition} -%}}"

    def _with(self) -> str:
        value, name = self._pipeline(), self._fresh()
        self._open("{%- endif -%}", name)
        return f"{{%- set {name} = {value} -%}}{{%- if {name} -%}}"

    def _range(self) -> str:
        names = []
        marks = [text for _, text in self._tokens]
        if ":=" in marks:
            head = self._tokens[: marks.index(":=")]
            del self._tokens[: marks.index(":=") + 1]
            names = [_variable(text) for kind, text in head if kind == "path"]
        over, dot = self._pipeline(), f"item{len(self._ends)}"
        each, things = f"{dot}_key", f"({over} or [])"
        self._open("{%- endfor -%}", dot)
        made = f"{{%- for {each} in {things} -%}}"
        made += f"{{%- set {dot} = {things}[{each}] if {things} is mapping else {each} -%}}"
        if len(names) == 2:
            made += f"{{%- set {names[0]} = {each} if {things} is mapping else loop.index0 -%}}"
        return made + (f"{{%- set {names[-1]} = {dot} -%}}" if names else "")

    def _else(self) -> str:
        if not self._ends:
            raise ValueError("it belongs to no block")
        if self._tokens and self._tokens[0] == ("word", "if"):
            self._tokens.pop(0)
            return f"{{%- elif {self._pipeline()} -%}}"
        self._dots[-1] = self._dots[-2]
        return "{%- else -%}"

    def _end(self) -> str:
        if not self._ends:
            raise ValueError("it belongs to no block")
        self._dots.pop()
        return self._ends.pop()

    _STATEMENTS: Final = MappingProxyType[str, Callable[["_Translation"], str]](
        {
            "if": _if,
            "with": _with,
            "range": _range,
            "else": _else,
            "end": _end,
            "break": lambda _: "{%- break -%}",
            "continue": lambda _: "{%- continue -%}",
        }
    )

    def _fresh(self) -> str:
        self._count += 1
        return f"go.with{self._count}"

    def _pipeline(self) -> str:
        """Commands with pipes between them: the result of one is the last argument of the next."""
        value = self._command(())
        while self._tokens and self._tokens[0][1] == "|":
            self._tokens.pop(0)
            value = self._command((value,))
        if self._tokens and self._tokens[0][1] != ")":
            raise ValueError(f"{self._tokens[0][1]} is not expected")
        return value

    def _command(self, piped: tuple[str, ...]) -> str:
        kind, text = self._tokens[0]
        if kind != "word" or text in ("true", "false", "nil"):
            return self._operand()
        self._tokens.pop(0)
        given = []
        while self._tokens and self._tokens[0][1] not in (")", "|"):
            given.append(self._operand())
        return _call(text, [*given, *piped])

    def _operand(self) -> str:
        kind, text = self._tokens.pop(0)
        if kind == "text":
            return _quoted(text[1:-1] if text[0] == "`" else json.loads(text, strict=False))
        if kind == "number":
            return text
        if kind == "path":
            return self._path(text)
        if text in ("true", "false", "nil"):
            return "none" if text == "nil" else text
        if text != "(" or self._parentheses >= _MAX_DEPTH:
            raise ValueError(f"{text} is not expected")
        self._parentheses += 1
        value = self._pipeline()
        self._parentheses -= 1
        if not self._tokens or self._tokens.pop(0)[1] != ")":
            raise ValueError("a parenthesis is not closed")
        return f"({value})"

    def _path(self, text: str) -> str:
        """A variable or dot, and fields of it."""
        base, *fields = text.split(".")
        fields = [field for field in fields if field]
        value = self._dots[-1] if not base else "$" if base == "$" else _variable(base)
        if value == "$":
            if not fields or fields[0] not in _ROOT:
                raise ValueError(f"ollama's value {text} is not known")
            value = _ROOT[fields.pop(0)]
        for field in fields:
            if field == "Content" and len(fields) > 1:
                raise ValueError("the content of a message is a text, which has no fields")
            if field == "Content":
                value = _content(value)
            else:
                value = f"{value}.{_FIELDS.get(field, field.lower())}"
        return value


def _tokens(words: str) -> list[tuple[str, str]]:
    found, at = [], 0
    while at < len(words):
        match = _TOKEN.match(words, at)
        if match is None:
            raise ValueError(f"{words[at:].split(maxsplit=1)[0]} is not understood")
        found.append((str(match.lastgroup), match[match.lastgroup or 0]))
        at = match.end()
    if not found:
        raise ValueError("it is empty")
    return found


def _quoted(text: str) -> str:
    """A literal of Jinja, which knows JSON's escapes except those of UTF-16."""
    return json.dumps(text, ensure_ascii=False)


def _variable(name: str) -> str:
    if not re.fullmatch(r"\$\w+", name):
        raise ValueError(f"{name} is not a variable")
    return f"go.var{name[1:]}"


def _call(function: str, given: list[str]) -> str:
    """A call of one of Go's functions."""
    if function in ("and", "or") and given:
        return f"({f' {function} '.join(given)})"
    if function == "eq" and len(given) >= 2:
        return f"({given[0]} in [{', '.join(given[1:])}])"
    if function in _COMPARISONS and len(given) == 2:
        return f"({given[0]} {_COMPARISONS[function]} {given[1]})"
    if function == "slice" and 1 <= len(given) <= 3:
        start, end = [*given[1:], "", ""][:2]
        return f"{given[0]}[{start}:{end}]"
    if function == "index" and len(given) == 2:
        return f"{given[0]}[{given[1]}]"
    if function == "currentDate" and not given:
        return 'strftime_now("%Y-%m-%d")'
    if len(given) == 1 and function in ("not", "len", "json"):
        value = given[0]
        return {
            "not": f"(not {value})",
            "len": f"(({value} or []) | length)",
            "json": f"({value} | tojson)",
        }[function]
    raise ValueError(f"{function} is not supported")
