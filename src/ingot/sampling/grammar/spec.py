"""Grammar: what a structured output must look like, independent of any vocabulary.

In: a JSON schema, a regular expression, a list of choices, a Lark or a GBNF grammar. Out: a frozen
`Grammar` for `SamplingParams`. Mistakes in it are found when it is compiled (compile.py).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from ingot.errors import GrammarError
from ingot.sampling.grammar.limits import LARGEST_SOURCE


class GrammarKind(StrEnum):
    """The languages of grammars."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    CHOICES = "choices"
    LARK = "lark"
    GBNF = "gbnf"


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar; `markers` make it lazy: it applies only after one of them."""

    kind: GrammarKind
    source: str  # choices: a JSON list of strings
    markers: tuple[str, ...] = ()
    before: str = ""  # rules in Lark for a text that comes first; their start is `before`

    def __post_init__(self) -> None:
        size = len(self.source) + len(self.before) + sum(map(len, self.markers))
        if size > LARGEST_SOURCE:
            raise GrammarError(
                f"the {self.kind} has {size:,} characters; at most {LARGEST_SOURCE:,} are allowed"
            )

    @classmethod
    def json_schema(cls, schema: Mapping[str, object] | bool | str) -> Self:
        """JSON that follows a schema (a mapping, or its JSON text); `True` allows any JSON."""
        try:
            text = schema if isinstance(schema, str) else json.dumps(schema)
            made = cls(GrammarKind.JSON_SCHEMA, text)
            json.loads(text)
        except RecursionError:
            raise GrammarError("the JSON schema is nested too deeply") from None
        except (TypeError, ValueError) as error:  # for Python types there is `grammar_of`
            if isinstance(error, GrammarError):
                raise
            raise GrammarError(f"the JSON schema is not valid JSON: {error}") from None
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
            raise GrammarError("choices must be one or more strings, none of them empty")
        return cls(GrammarKind.CHOICES, json.dumps(listed))

    @classmethod
    def lark(cls, text: str) -> Self:
        """A grammar in llguidance's dialect of Lark; its first rule is `start`."""
        return cls(GrammarKind.LARK, text)

    @classmethod
    def gbnf(cls, text: str) -> Self:
        """A grammar in llama.cpp's GBNF; its first rule is `root`."""
        return cls(GrammarKind.GBNF, text)

    def preceded_by(self, rules: str) -> Self:
        """The same grammar after a text that follows the rule `before` of `rules` (in Lark)."""
        return replace(self, before=rules)

    def after(self, *markers: str) -> Self:
        """The same grammar, lazy: the text is free until a marker, and again after the grammar."""
        if not markers or not all(markers):
            raise GrammarError("a lazy grammar needs at least one marker, none of them empty")
        return replace(self, markers=markers)
