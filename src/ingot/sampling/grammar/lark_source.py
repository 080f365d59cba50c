"""From a `Grammar` to the text that llguidance reads.

In: a grammar in any of its languages. Out: a list of two grammars in JSON, a frame in Lark and the
grammar itself. GBNF is not converted here, because the conversion is in Python and slow for large
grammars; the trial process does it (trial_main.py). Mistakes in a grammar are found when it is
compiled.
"""

import json

from ingot.errors import GrammarError
from ingot.sampling.grammar.forced_bytes import may_force_much
from ingot.sampling.grammar.schema_defaults import bounded
from ingot.sampling.grammar.spec import Grammar, GrammarKind
from ingot.sampling.grammar.vocabulary import GrammarVocabulary

# Without a bound, a model at a high temperature can write white space for ever.
_BLANKS = r"[\x20\x0A\x0D\x09]{1,64}"
_SETTINGS = "x-guidance"


def frame_of(grammar: Grammar, vocabulary: GrammarVocabulary) -> str:
    """The rules in Lark around a grammar, which they call `@body`."""
    frame = f"start: before @body\n{grammar.before}" if grammar.before else "start: @body"
    if grammar.markers:
        frame = _lazy(grammar, vocabulary)
    # llguidance treats forced bytes as written even if no token can spell them.
    if not vocabulary.tokens.writes_all_text or may_force_much(grammar):
        frame = f'%llguidance {{"no_forcing": true}}\n{frame}'
    return frame


def body_of(grammar: Grammar) -> dict[str, object]:
    """The grammar itself; GBNF stays unconverted."""
    source = grammar.source
    match grammar.kind:
        case GrammarKind.JSON_SCHEMA:
            return {"name": "body", "json_schema": _bounded_schema(json.loads(source))}
        case GrammarKind.REGEX:
            return lark_body(f"start: /{regex_to_lark(source)}/")
        case GrammarKind.CHOICES:
            options = " | ".join(json.dumps(option) for option in json.loads(source))
            return lark_body(f"start: CHOICE\nCHOICE: {options}")
        case GrammarKind.LARK | GrammarKind.GBNF:
            return lark_body(source)


def regex_to_lark(pattern: str) -> str:
    r"""A regular expression as Lark has it between slashes; `\d` matches 0 to 9 only."""
    from llguidance import regex_to_lark as convert  # noqa: PLC0415 (0.1 s)

    return str(convert(pattern, use_ascii="d"))


def lark_body(text: str) -> dict[str, object]:
    """A body in Lark (or in GBNF, to be converted)."""
    return {"name": "body", "lark_grammar": text}


def joined(frame: str, body: dict[str, object]) -> str:
    """Frame and body as the JSON text that llguidance compiles."""
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


def _bounded_schema(schema: object) -> object:
    """A schema whose integers and strings end, and its white space, unless the schema has its own
    settings for llguidance."""
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        return schema
    try:
        return {_SETTINGS: {"whitespace_pattern": _BLANKS}, **bounded(schema)}
    except RecursionError:
        raise GrammarError("the JSON schema is nested too deeply") from None
