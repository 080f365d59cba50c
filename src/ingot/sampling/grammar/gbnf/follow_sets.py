"""First sets and follow sets: the bytes that a piece may begin with, and that may follow it.

Sets of bytes are integers, bit n for byte n. Characters count by the first byte of their UTF-8
form, because a lexer sees that byte when it decides whether a terminal continues.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from ingot.sampling.grammar.gbnf.expressions import (
    Characters,
    Choice,
    ControlToken,
    Expression,
    Ranges,
    Reference,
    Repeat,
    Sequence,
)

# Last character, first byte and shift of UTF-8 forms of 1 to 4 bytes.
_LENGTHS = ((0x7F, 0x00, 0), (0x7FF, 0xC0, 6), (0xFFFF, 0xE0, 12), (0x10FFFF, 0xF0, 18))


def first_byte(character: int) -> int:
    """The first byte of a character in UTF-8."""
    return next(base | character >> shift for last, base, shift in _LENGTHS if character <= last)


@lru_cache(maxsize=1024)
def first_bytes(ranges: Ranges) -> int:
    """The set of the first bytes of some characters."""
    found = 0
    for first, last in ranges:
        low, high = first_byte(first), first_byte(last)
        found |= (1 << (high + 1)) - (1 << low)
    return found


class Follow:
    """The first and follow sets of each rule."""

    def __init__(self, rules: Mapping[str, Expression]) -> None:
        self._rules = rules
        self._first = dict.fromkeys(rules, 0)
        self._nullable = dict.fromkeys(rules, False)
        self.followers = dict.fromkeys(rules, 0)  # the bytes that may follow a rule
        self._until_stable(self._learn_first)
        self._until_stable(self._learn_followers)

    def first(self, expression: Expression) -> tuple[int, bool]:
        """The bytes an expression may begin with, and whether it may be empty."""
        match expression:
            case Characters(ranges):
                return first_bytes(ranges), False
            case ControlToken():
                return 0, False
            case Reference(name):
                return self._first[name], self._nullable[name]
            case Repeat(part, least, most):
                found, nullable = self.first(part)
                return (0, True) if most == 0 else (found, nullable or least == 0)
            case Choice(options):
                pairs = [self.first(option) for option in options]
                union = 0
                for found, _ in pairs:
                    union |= found
                return union, any(nullable for _, nullable in pairs)
            case Sequence(parts):
                return self.first_of(parts, 0)

    def first_of(self, parts: tuple[Expression, ...], followers: int) -> tuple[int, bool]:
        """The same for a sequence; if it may be empty, with the bytes that follow it."""
        union = 0
        for part in parts:
            found, nullable = self.first(part)
            union |= found
            if not nullable:
                return union, False
        return union | followers, True

    def parts(self, expression: Expression, followers: int) -> Iterator[tuple[Expression, int]]:
        """The parts of an expression, each with the bytes that may follow it."""
        match expression:
            case Sequence(parts):
                for number, part in enumerate(parts, 1):
                    yield part, self.first_of(parts[number:], followers)[0]
            case Choice(options):
                for option in options:
                    yield option, followers
            case Repeat(part, _, most):
                again = self.first(part)[0] if most is None or most > 1 else 0
                yield part, followers | again
            case _:
                return

    def _until_stable(self, learn: Callable[[str, Expression], bool]) -> None:
        changed = True
        while changed:
            changed = False
            for name, expression in self._rules.items():
                changed |= learn(name, expression)

    def _learn_first(self, name: str, expression: Expression) -> bool:
        found = self.first(expression)
        changed = found != (self._first[name], self._nullable[name])
        self._first[name], self._nullable[name] = found
        return changed

    def _learn_followers(self, name: str, expression: Expression) -> bool:
        changed = False
        waiting = [(expression, self.followers[name])]
        while waiting:
            part, followers = waiting.pop()
            if isinstance(part, Reference):
                changed |= bool(followers & ~self.followers[part.name])
                self.followers[part.name] |= followers
            waiting += self.parts(part, followers)
        return changed
