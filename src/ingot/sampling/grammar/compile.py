"""From a `Grammar` to a matcher over a vocabulary.

Comes in: a grammar in any of its languages. Goes out: an `LLMatcher` at the start of a text.
What llguidance cannot enforce to the letter is refused with its reason. A lazy grammar is
wrapped: free text up to a marker, the grammar behind it, and free text again.
"""

import json
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

from ingot.errors import GrammarError
from ingot.sampling.grammar import regex
from ingot.sampling.grammar.spec import Grammar, GrammarKind
from ingot.sampling.grammar.vocabulary import GrammarVocabulary
from ingot.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher

_KEPT = 64  # compiled grammars: requests come again with the same schema
# Without a bound a model at a high temperature can write blanks for ever.
_BLANKS = r"[\x20\x0A\x0D\x09]{1,64}"
_SETTINGS = "x-guidance"


class GrammarCompiler:
    """Compiles grammars for one vocabulary and keeps what it compiled; for any thread."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.vocabulary = GrammarVocabulary(tokenizer)
        self._compiled: OrderedDict[Grammar, LLMatcher] = OrderedDict()
        self._lock = Lock()

    def matcher(self, grammar: Grammar) -> "LLMatcher":
        """A matcher at the start of a text."""
        with self._lock:
            known = self._compiled.get(grammar)
            if known is None:
                known = self._compiled[grammar] = self._compile(grammar)
                while len(self._compiled) > _KEPT:
                    self._compiled.popitem(last=False)
            self._compiled.move_to_end(grammar)
            return known.deep_copy()

    def _compile(self, grammar: Grammar) -> "LLMatcher":
        from llguidance import LLMatcher  # noqa: PLC0415 (0.1 s)

        vocabulary = self.vocabulary.native
        text = self._source(grammar)
        failed, messages = LLMatcher.validate_grammar_with_warnings(text, vocabulary)
        if failed:
            raise GrammarError(f"the {grammar.kind} cannot be honoured: {messages[0].strip()}")
        matcher = LLMatcher(vocabulary, text, log_level=0)
        if matcher.is_error():
            reason = matcher.get_error().strip()
            raise GrammarError(f"the {grammar.kind} cannot be honoured: {reason}")
        return matcher

    def _source(self, grammar: Grammar) -> str:
        """The grammar as llguidance reads it: a frame in Lark around the grammar itself."""
        frame = f"start: before @body\n{grammar.before}" if grammar.before else "start: @body"
        if grammar.markers:
            frame = self._lazy(grammar)
        if not self.vocabulary.tokens.writes_all_text:
            # It takes bytes that must come for written, also where no token can write them.
            frame = f'%llguidance {{"no_forcing": true}}\n{frame}'
        return json.dumps({"grammars": [{"lark_grammar": frame}, _body(grammar)]})

    def _lazy(self, grammar: Grammar) -> str:
        lines = ["TEXT: /(?s:.*)/", "last: TEXT"]
        for number, marker in enumerate(grammar.markers):
            token = self.vocabulary.control_token(marker)
            if token is None:
                lines.append(f"m{number}[lazy]: TEXT {json.dumps(marker)}")
            else:
                lines.append(f"m{number}: TEXT <[{token}]>")
        markers = " | ".join(f"m{number}" for number in range(len(grammar.markers)))
        return "\n".join([f"start: (({markers}) @body)* last", *lines])


def _body(grammar: Grammar) -> dict[str, object]:
    """One grammar of llguidance's list of grammars."""
    source = grammar.source
    match grammar.kind:
        case GrammarKind.JSON_SCHEMA:
            return {"name": "body", "json_schema": _bounded(json.loads(source))}
        case GrammarKind.REGEX:
            return {"name": "body", "lark_grammar": f"start: /{regex.to_lark(source)}/"}
        case GrammarKind.CHOICES:
            options = " | ".join(json.dumps(option) for option in json.loads(source))
            return {"name": "body", "lark_grammar": f"start: CHOICE\nCHOICE: {options}"}
        case GrammarKind.LARK:
            return {"name": "body", "lark_grammar": source}
        case GrammarKind.GBNF:
            from ingot.sampling.grammar.gbnf import to_lark  # noqa: PLC0415 (if needed)

            return {"name": "body", "lark_grammar": to_lark(source)}


def _bounded(schema: object) -> object:
    """A schema with a bound on blanks, unless it has its own settings for llguidance."""
    if schema is True:
        schema = {}
    if not isinstance(schema, dict) or _SETTINGS in schema:
        return schema
    return {**schema, _SETTINGS: {"whitespace_pattern": _BLANKS}}
