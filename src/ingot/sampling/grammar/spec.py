"""What a constrained output must look like: a description, not yet bound to a vocabulary.

Comes in: a JSON schema, a regular expression, a list of choices, a Lark or a GBNF grammar.
Goes out: a frozen `Grammar` that `SamplingParams` carries. It does not know whether the
grammar is sound; that shows when it is compiled (compile.py).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from ingot.errors import GrammarError
from ingot.sampling.grammar.limits import LARGEST_SOURCE


class GrammarKind(StrEnum):
    """The languages a grammar may be written in."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    CHOICES = "choices"
    LARK = "lark"
    GBNF = "gbnf"


@dataclass(frozen=True, slots=True)
class Grammar:
    """One grammar; `markers` makes it lazy: it rules only what follows one of them."""

    kind: GrammarKind
    source: str  # choices: a JSON list of strings
    markers: tuple[str, ...] = ()
    before: str = ""  # rules in Lark of a text that comes first; `before` is their start

    def __post_init__(self) -> None:
        size = len(self.source) + len(self.before) + sum(map(len, self.markers))
        if size > LARGEST_SOURCE:
            raise GrammarError(
                f"the {self.kind} has {size:,} characters; {LARGEST_SOURCE:,} are the most"
            )

    @classmethod
    def json_schema(cls, schema: Mapping[str, object] | bool | str) -> Self:
        """JSON that a schema (a mapping, or its JSON text) describes; `True` is any JSON."""
        try:
            text = schema if isinstance(schema, str) else json.dumps(schema)
            made = cls(GrammarKind.JSON_SCHEMA, text)
            json.loads(text)
        except RecursionError:
            raise GrammarError("the JSON schema is nested too deeply") from None
        except (TypeError, ValueError) as error:  # of types, there is `grammar_of`
            if isinstance(error, GrammarError):
                raise
            raise GrammarError(f"the JSON schema is no JSON: {error}") from None
        return made

    @classmethod
    def regex(cls, pattern: str) -> Self:
        r"""Text that a regular expression matches as a whole; `\d` is 0 to 9."""
        return cls(GrammarKind.REGEX, pattern)

    @classmethod
    def choices(cls, options: Iterable[str]) -> Self:
        """One of several texts."""
        listed = [options] if isinstance(options, str) else list(options)
        if not listed or not all(isinstance(option, str) and option for option in listed):
            raise GrammarError("choices must be one or more texts, none of them empty")
        return cls(GrammarKind.CHOICES, json.dumps(listed))

    @classmethod
    def lark(cls, text: str) -> Self:
        """A grammar in llguidance's dialect of Lark, beginning with the rule `start`."""
        return cls(GrammarKind.LARK, text)

    @classmethod
    def gbnf(cls, text: str) -> Self:
        """A grammar as llama.cpp writes them, beginning with the rule `root`."""
        return cls(GrammarKind.GBNF, text)

    def behind(self, rules: str) -> Self:
        """The same, behind a text that the rule `before` of some rules in Lark describes."""
        return replace(self, before=rules)

    def after(self, *markers: str) -> Self:
        """The same, lazy: text is free until a marker comes, and again behind the grammar."""
        if not markers or not all(markers):
            raise GrammarError("a lazy grammar needs at least one marker, none of them empty")
        return replace(self, markers=markers)
