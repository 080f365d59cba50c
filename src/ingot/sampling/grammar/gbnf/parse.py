"""A parser of GBNF.

In: the text of a grammar. Out: an expression for each rule name. Invalid GBNF raises
`GrammarError` with the line. It does not know Lark.
"""

from collections.abc import Mapping

from ingot.errors import GrammarError
from ingot.sampling.grammar.gbnf.expressions import (
    LAST_CHARACTER,
    Characters,
    Choice,
    ControlToken,
    Expression,
    Reference,
    Repeat,
    Sequence,
    complement,
    literal,
    ranges_of,
)

_ESCAPES = {
    "n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-", "^": "^",
}  # fmt: skip
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
# Far above what people write. Grammars may come from untrusted clients.
_MOST_REPEATS = 2000
_MOST_RULES = 1000
_DEEPEST = 100  # nested parentheses


def parse(text: str) -> Mapping[str, Expression]:
    """The rules of a grammar by name."""
    rules = _Parser(text).rules()
    for name, expression in rules.items():
        for used in references(expression):
            if used not in rules:
                raise GrammarError(f"the GBNF rule {name!r} uses {used!r}, which is not defined")
    if "root" not in rules:
        raise GrammarError("the GBNF grammar has no rule named 'root'")
    return rules


def references(expression: Expression) -> set[str]:
    """The names of the rules that an expression uses."""
    match expression:
        case Reference(name):
            return {name}
        case Sequence(parts) | Choice(parts):
            return set().union(*map(references, parts)) if parts else set()
        case Repeat(part):
            return references(part)
        case _:
            return set()


def has_control_token(expression: Expression) -> bool:
    """Whether an expression itself contains a control token."""
    match expression:
        case ControlToken():
            return True
        case Sequence(parts) | Choice(parts):
            return any(map(has_control_token, parts))
        case Repeat(part):
            return has_control_token(part)
        case _:
            return False


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def rules(self) -> dict[str, Expression]:
        rules: dict[str, Expression] = {}
        self._skip(newlines=True)
        while self._at < len(self._text):
            name = self._name()
            self._skip(newlines=False)
            if not self._take("::="):
                raise self._error("'::=' is missing after a rule name")
            if name in rules:
                raise self._error(f"the rule {name!r} is defined twice")
            if len(rules) == _MOST_RULES:
                raise self._error(f"at most {_MOST_RULES} rules are allowed")
            self._skip(newlines=True)
            rules[name] = self._choice(nested=False)
            if self._at < len(self._text) and self._peek() not in "\r\n":
                raise self._error("a rule must end at the end of its line")
            self._skip(newlines=True)
        return rules

    def _choice(self, nested: bool) -> Expression:
        options = [self._sequence(nested)]
        while self._take("|"):
            self._skip(newlines=True)
            options.append(self._sequence(nested))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self, nested: bool) -> Expression:
        parts: list[Expression] = []
        while (character := self._peek()) and character not in "|)\r\n":
            part = self._item()
            self._skip(newlines=nested)
            while repeat := self._repeat(part):
                part = repeat
                self._skip(newlines=nested)
            parts.append(part)
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _item(self) -> Expression:
        character = self._peek()
        if character == '"':
            return self._literal()
        if character == "[":
            return self._characters()
        if character == "<":
            return self._control_token()
        if self._take("."):
            return Characters(((0, LAST_CHARACTER),))
        if self._take("("):
            self._depth += 1
            if self._depth > _DEEPEST:
                raise self._error(f"more than {_DEEPEST} nested parentheses")
            self._skip(newlines=True)
            inner = self._choice(nested=True)
            if not self._take(")"):
                raise self._error("')' is missing")
            self._depth -= 1
            return inner
        return Reference(self._name())

    def _repeat(self, part: Expression) -> Repeat | None:
        for sign, least, most in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self._take(sign):
                return Repeat(part, least, most)
        if not self._take("{"):
            return None
        self._skip(newlines=False)
        first = self._number()
        self._skip(newlines=False)
        last = first
        if self._take(","):
            self._skip(newlines=False)
            last = self._number()
            self._skip(newlines=False)
        if not self._take("}") or (first is None and last is None):
            raise self._error("a repetition is written {m}, {m,}, {,n} or {m,n}")
        least = first or 0
        if last is not None and last < least:
            raise self._error(f"{{{least},{last}}} has a minimum above its maximum")
        if max(least, last or 0) > _MOST_REPEATS:
            raise self._error(f"at most {_MOST_REPEATS} repetitions are allowed")
        return Repeat(part, least, last)

    def _literal(self) -> Expression:
        self._at += 1
        text = ""
        while self._peek() != '"':
            text += self._character('"')
        self._at += 1
        return literal(text)

    def _characters(self) -> Expression:
        self._at += 1
        negated = self._take("^")
        points: list[tuple[int, int]] = []
        while self._peek() != "]":
            first = last = ord(self._character("]"))
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                last = ord(self._character("]"))
            if last < first:
                raise self._error(f"the range {chr(first)!r} to {chr(last)!r} is empty")
            points.append((first, last))
        self._at += 1
        ranges = ranges_of(points)
        if not (ranges := complement(ranges) if negated else ranges):
            raise self._error("a character class is empty")
        return Characters(ranges)

    def _character(self, closing: str) -> str:
        character = self._peek()
        if not character or character in "\r\n":
            raise self._error(f"{closing} is missing")
        self._at += 1
        if character != "\\":
            return character
        kind = self._peek()
        self._at += 1
        if kind in _HEX_DIGITS:
            digits = self._text[self._at : self._at + _HEX_DIGITS[kind]]
            self._at += len(digits)
            try:
                return chr(int(digits, 16))
            except (ValueError, OverflowError):
                raise self._error(f"\\{kind}{digits} is not a character") from None
        if kind not in _ESCAPES or not kind:
            raise self._error(f"\\{kind} is not an escape sequence")
        return _ESCAPES[kind]

    def _control_token(self) -> Expression:
        end = self._text.find(">", self._at)
        inner = self._text[self._at + 1 : end] if end >= 0 else ""
        if not (inner.startswith("[") and inner.endswith("]") and inner[1:-1].isdecimal()):
            raise self._error("a token is written by its id, as in <[1234]>")
        self._at = end + 1
        return ControlToken(int(inner[1:-1]))

    def _number(self) -> int | None:
        start = self._at
        while self._peek().isdecimal() and self._peek():
            self._at += 1
        return int(self._text[start : self._at]) if self._at > start else None

    def _name(self) -> str:
        start = self._at
        while (c := self._peek()) and (c.isascii() and (c.isalnum() or c in "-_")):
            self._at += 1
        if self._at == start:
            raise self._error("expected a rule name, a literal or a character class")
        return self._text[start : self._at]

    def _skip(self, newlines: bool) -> None:
        """Skip blanks and comments, and line ends if `newlines`."""
        while character := self._peek():
            if character == "#":
                while self._peek() and self._peek() not in "\r\n":
                    self._at += 1
            elif character in " \t" or (newlines and character in "\r\n"):
                self._at += 1
            else:
                return

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, sign: str) -> bool:
        if not self._text.startswith(sign, self._at):
            return False
        self._at += len(sign)
        return True

    def _error(self, reason: str) -> GrammarError:
        line = self._text.count("\n", 0, self._at) + 1
        return GrammarError(f"line {line} of the GBNF grammar: {reason}")
