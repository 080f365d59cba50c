"""From a `Grammar` to the text that llguidance reads.

Comes in: a grammar in any of its languages. Goes out: a list of two grammars in JSON, a frame in
Lark and the grammar itself. GBNF is converted in Python, which takes long for large grammars; that
is left to whoever has the time (trial.py). What is wrong with a grammar shows when it is compiled.
"""

import json

from ingot.sampling.grammar import regex
from ingot.sampling.grammar.forcing import may_force_much
from ingot.sampling.grammar.spec import Grammar, GrammarKind
from ingot.sampling.grammar.vocabulary import GrammarVocabulary

# Without a bound a model at a high temperature can write blanks for ever.
_BLANKS = r"[\x20\x0A\x0D\x09]{1,64}"
_SETTINGS = "x-guidance"


def frame_of(grammar: Grammar, vocabulary: GrammarVocabulary) -> str:
    """The rules in Lark around a grammar, which they call `@body`."""
    frame = f"start: before @body\n{grammar.before}" if grammar.before else "start: @body"
    if grammar.markers:
        frame = _lazy(grammar, vocabulary)
    # llguidance takes bytes that must come for written, also if no token can write them.
    if not vocabulary.tokens.writes_all_text or may_force_much(grammar):
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


def _bounded(schema: object) -> object:
    """A schema with a bound on blanks, unless it has its own settings for llguidance."""
    if schema is True:
        schema = {}
    if not isinstance(schema, dict) or _SETTINGS in schema:
        return schema
    return {**schema, _SETTINGS: {"whitespace_pattern": _BLANKS}}
