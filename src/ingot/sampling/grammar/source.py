"""From a `Grammar` to the text that llguidance reads.

Comes in: a grammar in any of its languages. Goes out: a list of two grammars in JSON, a frame in
Lark and the grammar itself. GBNF is converted in Python, which takes long for large grammars; that
is left to whoever has the time (trial.py). What is wrong with a grammar shows when it is compiled.
"""

import json
import math
import re

from ingot.sampling.grammar import regex
from ingot.sampling.grammar.spec import Grammar, GrammarKind
from ingot.sampling.grammar.vocabulary import GrammarVocabulary

# Without a bound a model at a high temperature can write blanks for ever.
_BLANKS = r"[\x20\x0A\x0D\x09]{1,64}"
_SETTINGS = "x-guidance"
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
# Of patterns and rules: an escape, a class of characters, a literal, a group's ends, a count.
_PIECE = re.compile(
    r"\\.|\[(?:[^\]\\]|\\.){0,200}\]|(?P<literal>\"[^\"]*\")|(?P<open>\()|(?P<close>\))"
    r"|[{~]\s*(?P<least>\d{1,9})(?:\s*(?:,|\.\.)\s*(?P<most>\d{1,9}))?|.",
    re.DOTALL,
)
_MOST_FORCED = 16 << 10  # bytes in a row; they take 60 ms


def frame_of(grammar: Grammar, vocabulary: GrammarVocabulary) -> str:
    """The rules in Lark around a grammar, which they call `@body`."""
    frame = f"start: before @body\n{grammar.before}" if grammar.before else "start: @body"
    if grammar.markers:
        frame = _lazy(grammar, vocabulary)
    # llguidance takes bytes that must come for written, also if no token can write them. And it
    # computes all of them in one go, however many there are, while nothing else can run.
    if not vocabulary.tokens.writes_all_text or _may_force_much(grammar):
        frame = f'%llguidance {{"no_forcing": true}}\n{frame}'
    return frame


def body_of(grammar: Grammar) -> dict[str, object]:
    """The grammar itself, unless it is GBNF."""
    source = grammar.source
    match grammar.kind:
        case GrammarKind.JSON_SCHEMA:
            return {"name": "body", "json_schema": _bounded(json.loads(source))}
        case GrammarKind.REGEX:
            return lark_body(f"start: /{regex.to_lark(source)}/")
        case GrammarKind.CHOICES:
            options = " | ".join(json.dumps(option) for option in json.loads(source))
            return lark_body(f"start: CHOICE\nCHOICE: {options}")
        case GrammarKind.LARK | GrammarKind.GBNF:
            return lark_body(source)


def lark_body(text: str) -> dict[str, object]:
    """A grammar that is there in Lark."""
    return {"name": "body", "lark_grammar": text}


def joined(frame: str, body: dict[str, object]) -> str:
    """Both together."""
    return json.dumps({"grammars": [{"lark_grammar": frame}, body]})


def _lazy(grammar: Grammar, vocabulary: GrammarVocabulary) -> str:
    lines = ["TEXT: /(?s:.*)/", "last: TEXT"]
    for number, marker in enumerate(grammar.markers):
        token = vocabulary.control_token(marker)
        if token is None:
            lines.append(f"m{number}[lazy]: TEXT {json.dumps(marker)}")
        else:
            lines.append(f"m{number}: TEXT <[{token}]>")
    markers = " | ".join(f"m{number}" for number in range(len(grammar.markers)))
    return "\n".join([f"start: (({markers}) @body)* last", *lines])


def _may_force_much(grammar: Grammar) -> bool:
    """Whether very many bytes in a row may leave no choice: long literals, large counts."""
    text = grammar.source
    if grammar.kind is GrammarKind.JSON_SCHEMA:
        strings = (found.group()[1:-1] for found in _STRING.finditer(text))
        return any(_longest(string) > _MOST_FORCED for string in strings)
    if len(text) > _MOST_FORCED:
        return True
    growth = (_longest(line) / len(line) for line in text.splitlines() if line)
    return len(text) * math.prod(growth) > _MOST_FORCED  # rules may call each other


def _longest(pattern: str) -> int:
    """About how many characters a pattern stands for, if every count is taken at its largest."""
    totals, last = [0], 0
    for found in _PIECE.finditer(pattern):
        match found.lastgroup:
            case "open":
                totals.append(0)
            case "close" if len(totals) > 1:
                last = totals.pop()
                totals[-1] += last
            case "least" | "most":
                count = max(1, *(int(n) for n in found.group("least", "most") if n))
                if pattern[found.start() - 1] == "/" or found.group().startswith("~"):
                    last = totals[-1]  # a regular expression in Lark, and what is before it
                totals[-1] += last * (count - 1)
                last *= count
            case _:
                last = len(found.group()) if found.lastgroup else 1
                totals[-1] += last
    return max(1, sum(totals))


def _bounded(schema: object) -> object:
    """A schema with a bound on blanks, unless it has its own settings for llguidance."""
    if schema is True:
        schema = {}
    if not isinstance(schema, dict) or _SETTINGS in schema:
        return schema
    return {**schema, _SETTINGS: {"whitespace_pattern": _BLANKS}}
