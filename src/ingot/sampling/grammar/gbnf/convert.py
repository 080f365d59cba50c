"""From GBNF to llguidance's Lark, without changing the language.

A grammar without recursion becomes one terminal. In others, the largest pieces without recursion
become terminals, as long as there is only one way to split a text into them (see ambiguity.py). A
piece that allows another way is taken apart, down to single characters if necessary. Large
terminals make masks fast: a JSON string takes microseconds per token as one terminal and
milliseconds as single characters.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from ingot.sampling.grammar.gbnf.ambiguity import Positions, TooLargeError, may_continue
from ingot.sampling.grammar.gbnf.expressions import (
    LAST_CHARACTER,
    Characters,
    Choice,
    ControlToken,
    Expression,
    Ranges,
    Reference,
    Repeat,
    Sequence,
)
from ingot.sampling.grammar.gbnf.follow_sets import Follow
from ingot.sampling.grammar.gbnf.parse import has_control_token, parse, references
from ingot.sampling.grammar.gbnf.tail_recursion import without_tail_recursion

_SURROGATES = (0xD800, 0xDFFF)


def to_lark(text: str) -> str:
    """The Lark grammar of a GBNF grammar."""
    rules = without_tail_recursion(parse(text))
    return _Converter(rules).lark()


class _Converter:
    def __init__(self, rules: Mapping[str, Expression]) -> None:
        self.rules = rules
        self.follow = Follow(rules)
        self.numbers = {name: number for number, name in enumerate(rules)}
        self._plain = self._find_plain()
        self._taken_apart: set[Expression] = set()
        self._positions: dict[Expression, Positions | None] = {}
        self._answers: dict[tuple[Expression, Expression, int], bool] = {}

    def lark(self) -> str:
        root = Reference("root")
        if "root" in self._plain:
            # There is nothing to confuse it with, so the whole grammar is one terminal.
            empty = "?" if self.follow.first(root)[1] else ""
            return "\n".join([f"start: {self._term(root)}{empty}", *self._terminals([root])]) + "\n"
        while True:
            rules = _Rules(self)
            apart = self._confusable(rules.terminals)
            if not apart:
                break
            self._taken_apart |= apart
        named = rules.terminals.items()
        pieces = [f"{found.name}: {self._term(piece)}" for piece, found in named]
        return "\n".join([*rules.lines, *pieces, *self._terminals(rules.terminals)]) + "\n"

    def _find_plain(self) -> set[str]:
        """The rules without recursion and without control tokens."""
        plain: set[str] = set()
        found = True
        while found:
            found = False
            for name, expression in self.rules.items():
                if name not in plain and self._is_plain(expression, plain):
                    plain.add(name)
                    found = True
        return plain

    def _is_plain(self, expression: Expression, plain: set[str]) -> bool:
        return references(expression) <= plain and not has_control_token(expression)

    def _positions_of(self, expression: Expression) -> Positions | None:
        if expression not in self._positions:
            try:
                self._positions[expression] = Positions.of(expression, self.rules)
            except TooLargeError:
                self._positions[expression] = None
        return self._positions[expression]

    def may_be_terminal(self, expression: Expression, followers: int) -> bool:
        """Whether a piece ends in only one way if these bytes may follow it."""
        if expression in self._taken_apart or not self._is_plain(expression, self._plain):
            return False
        positions = self._positions_of(expression)
        if positions is None or positions.nullable:
            self._taken_apart.add(expression)
            return False
        if self._may_continue(expression, expression, followers):
            self._taken_apart.add(expression)
            return False
        return True

    def _may_continue(self, shorter: Expression, longer: Expression, followers: int) -> bool:
        if not self.follow.first(shorter)[0] & self.follow.first(longer)[0]:
            return False  # they have no first byte in common
        key = (shorter, longer, followers)
        if key not in self._answers:
            left, right = self._positions_of(shorter), self._positions_of(longer)
            assert left is not None, "terminals have positions"
            assert right is not None, "terminals have positions"
            self._answers[key] = may_continue(left, right, followers)
        return self._answers[key]

    def _confusable(self, terminals: Mapping[Expression, "_Terminal"]) -> set[Expression]:
        """The terminals that can be mistaken for another one and what follows it."""
        found = set()
        for shorter, longer in product(terminals, repeat=2):
            if self._may_continue(shorter, longer, terminals[shorter].followers):
                found.add(longer)
        return found - {piece for piece in found if isinstance(piece, Characters)}

    def _terminals(self, used: Iterable[Expression]) -> list[str]:
        """Definitions of the rules that terminals refer to."""
        names: list[str] = []
        waiting = sorted({name for piece in used for name in references(piece)})
        while waiting:
            name = waiting.pop(0)
            if name not in names:
                names.append(name)
                waiting += sorted(references(self.rules[name]))
        return [f"{self._terminal_name(name)}: {self._term(self.rules[name])}" for name in names]

    def _terminal_name(self, name: str) -> str:
        return f"T{self.numbers[name]}"

    def _term(self, expression: Expression) -> str:
        match expression:
            case Characters(ranges):
                return f"/{_character_class(ranges)}/"
            case Sequence(parts):
                return f"({' '.join(map(self._term, parts))})" if parts else '""'
            case Choice(options):
                return f"({' | '.join(map(self._term, options))})"
            case Repeat(part):
                return f"({self._term(part)}){_times(expression)}"
            case Reference(name):
                return self._terminal_name(name)
            case ControlToken():
                raise AssertionError("a control token cannot be part of a terminal")


@dataclass(slots=True)
class _Terminal:
    """The name of a piece, and the bytes that may follow it anywhere in the grammar."""

    name: str
    followers: int = 0


class _Rules:
    """The rules in Lark, split into the largest pieces that may be terminals."""

    def __init__(self, grammar: _Converter) -> None:
        self._grammar = grammar
        self.terminals: dict[Expression, _Terminal] = {}
        self.lines: list[str] = []
        self._written: list[str] = ["root"]  # and those still to write
        for name in self._written:
            body = self._rule(grammar.rules[name], grammar.follow.followers[name])
            self.lines.append(f"{self._rule_name(name)}: {body}")

    def _rule_name(self, name: str) -> str:
        return "start" if name == "root" else f"r{self._grammar.numbers[name]}"

    def _rule(self, expression: Expression, followers: int) -> str:
        if self._grammar.may_be_terminal(expression, followers):
            name = f"P{len(self.terminals)}"
            terminal = self.terminals.setdefault(expression, _Terminal(name))
            terminal.followers |= followers
            return terminal.name
        match expression:
            case Reference(name):
                if name not in self._written:
                    self._written.append(name)
                return self._rule_name(name)
            case ControlToken(id):
                return f"<[{id}]>"
            case Sequence(parts):
                pieces = [self._rule(*piece) for piece in self._segments(parts, followers)]
                return f"({' '.join(pieces)})" if pieces else '""'
            case Choice() | Repeat():
                inner = [
                    self._rule(*part) for part in self._grammar.follow.parts(expression, followers)
                ]
                times = _times(expression) if isinstance(expression, Repeat) else ""
                return f"({' | '.join(inner)}){times}"
            case Characters():
                raise AssertionError("a single character may always be a terminal")

    def _segments(
        self, parts: tuple[Expression, ...], followers: int
    ) -> Iterator[tuple[Expression, int]]:
        """A sequence as the fewest pieces that may be terminals, from the left."""
        start = 0
        while start < len(parts):
            for end in range(len(parts), start, -1):
                whole = parts[start] if end == start + 1 else Sequence(parts[start:end])
                after = self._grammar.follow.first_of(parts[end:], followers)[0]
                if end == start + 1 or self._grammar.may_be_terminal(whole, after):
                    yield whole, after
                    start = end
                    break


def _times(repeat: Repeat) -> str:
    match repeat.least, repeat.most:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case 0, 1:
            return "?"
        case least, most:
            return f"{{{least},{'' if most is None else most}}}"


def _character_class(ranges: Ranges) -> str:
    if ranges == ((0, LAST_CHARACTER),):
        return "(?s:.)"
    parts = []
    for first, last in ranges:
        for low, high in _without_surrogates(first, last):
            parts.append(_escaped(low) + (f"-{_escaped(high)}" if high > low else ""))
    return f"[{''.join(parts)}]"


def _without_surrogates(first: int, last: int) -> list[tuple[int, int]]:
    low, high = _SURROGATES
    pieces = [(first, min(last, low - 1)), (max(first, high + 1), last)]
    return [(a, b) for a, b in pieces if a <= b]


def _escaped(character: int) -> str:
    letter = chr(character)
    return letter if letter.isascii() and letter.isalnum() else f"\\x{{{character:x}}}"
