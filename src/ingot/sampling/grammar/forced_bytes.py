"""An upper bound on how many bytes in a row a grammar can force.

llguidance computes all forced bytes at once and holds the GIL meanwhile: a million of them, which
15 characters can ask for, stop all requests for seconds. This module estimates the longest run
from the text of the grammar. It takes every count at its largest and adds up alternatives, so it
says too much rather than too little.
"""

import re
from collections.abc import Callable

from ingot.sampling.grammar.spec import Grammar, GrammarKind

_MOST = 16 << 10  # bytes in a row, which take 60 ms
_DEEPEST = 50  # nested rules
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_RULE = re.compile(r"\s*[?!]?([A-Za-z_][\w-]*)[^:\"'/]*:(?::=)?(.*)", re.DOTALL)
# Parts of patterns and rules: escape, character class, literal, group, count, name.
_PIECE = re.compile(
    r"\\.|\[(?:[^\]\\]|\\.){0,200}\]|(?P<literal>\"(?:[^\"\\]|\\.)*\")|(?P<open>\()|(?P<close>\))"
    r"|(?P<count>[{~]\s*(?P<least>\d{1,9})(?:\s*(?:,|\.\.)\s*(?P<most>\d{1,9}))?)"
    r"|(?P<name>[A-Za-z_][\w-]*)|.",
    re.DOTALL,
)


def may_force_much(grammar: Grammar) -> bool:
    """Whether llguidance should not look for forced bytes in this grammar."""
    text = grammar.source
    match grammar.kind:
        case GrammarKind.JSON_SCHEMA:
            return any(_longest(found.group(1), len) > _MOST for found in _STRING.finditer(text))
        case GrammarKind.REGEX:
            return len(text) > _MOST or _longest(text, len) > _MOST
        case GrammarKind.CHOICES:
            return any(len(found.group()) > _MOST for found in _STRING.finditer(text))
        case GrammarKind.LARK | GrammarKind.GBNF:
            return len(text) > _MOST or _Rules(text).longest > _MOST


class _Rules:
    """The rules of a Lark or GBNF grammar, by name."""

    def __init__(self, text: str) -> None:
        self._bodies: dict[str, str] = {}
        self._lengths: dict[str, int] = {}
        self._path: list[str] = []
        name = ""
        for line in text.splitlines():
            if found := _RULE.fullmatch(line):
                name, line = found.groups()  # noqa: PLW2901 (the rest of it)
            self._bodies[name] = self._bodies.get(name, "") + line

    @property
    def longest(self) -> int:
        """The longest run that any rule can force."""
        return max(map(self._length, list(self._bodies)))

    def _length(self, name: str) -> int:
        """The longest run of a rule; recursion counts as short, because it needs a choice."""
        if name not in self._bodies or name in self._path:
            return len(name)
        if len(self._path) == _DEEPEST:
            return _MOST
        if name not in self._lengths:
            self._path.append(name)
            self._lengths[name] = min(_longest(self._bodies[name], self._length), _MOST + 1)
            self._path.pop()
        return self._lengths[name]


def _longest(pattern: str, length: Callable[[str], int]) -> int:
    """The longest text that a pattern can force; `length` gives that of a name."""
    totals, last = [0], 0
    for found in _PIECE.finditer(pattern):
        match found.lastgroup:
            case "open":
                totals.append(0)
                continue
            case "close" if len(totals) > 1:
                last = totals.pop()
            case "count":
                counts = [int(count) for count in found.group("least", "most") if count]
                if pattern[found.start() - 1] == "/" or found.group().startswith("~"):
                    last = totals[-1]  # a regular expression in Lark, and everything before it
                totals[-1] -= last
                last *= max(counts)
            case "literal":
                last = len(found.group())
            case "name":
                last = length(found.group())
            case _:
                last = 1
        totals[-1] += last
    return sum(totals)
