"""Whether a text of one terminal can be mistaken for the beginning of another one.

llguidance splits a text into the longest terminals that fit. That agrees with the grammar only if
a terminal never continues with a byte that may follow a shorter one: then there is one way to
split. This module answers that question for expressions without recursion, by walking the
positions of both at once. If the walk gets too long, the answer is yes, which is safe.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

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
from ingot.sampling.grammar.gbnf.follow_sets import first_bytes

_MOST_STEPS = 20000  # parts of an expression; those of a rule count at each use
_DEEPEST = 200  # nested rules
_MOST_POSITIONS = 3000
_MOST_STATES = 5000


class TooLargeError(Exception):
    """An expression has too many positions to walk."""


@dataclass(slots=True)
class Positions:
    """The characters of an expression, and which may follow which (Glushkov automaton, 1961)."""

    characters: list[Ranges] = field(default_factory=list)
    following: list[set[int]] = field(default_factory=list)
    first: frozenset[int] = frozenset()
    last: frozenset[int] = frozenset()
    nullable: bool = False
    _steps: int = 0

    @classmethod
    def of(cls, expression: Expression, rules: Mapping[str, Expression]) -> "Positions":
        """Number the characters of an expression."""
        positions = cls()
        part = positions._add(expression, rules, 0)
        positions.first, positions.last, positions.nullable = part
        return positions

    def _add(self, expression: Expression, rules: Mapping[str, Expression], depth: int) -> "_Part":
        self._steps += 1
        if self._steps > _MOST_STEPS or depth > _DEEPEST:
            raise TooLargeError
        match expression:
            case Characters(ranges):
                return self._character(ranges)
            case Sequence(parts):
                return self._chain(self._add(part, rules, depth) for part in parts)
            case Choice(options):
                added = [self._add(option, rules, depth) for option in options]
                first: frozenset[int] = frozenset().union(*(part[0] for part in added))
                last: frozenset[int] = frozenset().union(*(part[1] for part in added))
                return first, last, any(part[2] for part in added)
            case Repeat():
                return self._repeat(expression, rules, depth)
            case Reference(name):
                return self._add(rules[name], rules, depth + 1)
            case ControlToken():
                raise TooLargeError

    def _character(self, ranges: Ranges) -> "_Part":
        if len(self.characters) >= _MOST_POSITIONS:
            raise TooLargeError
        self.characters.append(ranges)
        self.following.append(set())
        only = frozenset({len(self.characters) - 1})
        return only, only, False

    def _chain(self, parts: Iterable["_Part"]) -> "_Part":
        first: frozenset[int] = frozenset()
        last: frozenset[int] = frozenset()
        nullable = True
        for part_first, part_last, part_nullable in parts:
            for position in last:
                self.following[position] |= part_first
            first = first | part_first if nullable else first
            last = last | part_last if part_nullable else part_last
            nullable = nullable and part_nullable
        return first, last, nullable

    def _repeat(self, repeat: Repeat, rules: Mapping[str, Expression], depth: int) -> "_Part":
        least, most = repeat.least, repeat.most
        count = max(least, 1) if most is None else most
        copies = [self._add(repeat.part, rules, depth) for _ in range(count)]
        if most is None:
            first, last, _ = copies[-1]
            for position in last:
                self.following[position] |= first
        optional = [
            (first, last, nullable or number >= least)
            for number, (first, last, nullable) in enumerate(copies)
        ]
        return self._chain(optional)


_Part = tuple[frozenset[int], frozenset[int], bool]  # first, last, nullable


def may_continue(shorter: Positions, longer: Positions, followers: int) -> bool:
    """Whether a text of `shorter` can continue as one of `longer` with a byte in `followers`."""
    if not followers:
        return False
    start = (shorter.first, longer.first)
    waiting, seen = [start], {start}
    while waiting:
        left, right = waiting.pop()  # the positions that may come next
        for pair in _steps(left, right, shorter, longer):
            matched_left, matched_right = pair
            next_right = _after(matched_right, longer)
            if matched_left & shorter.last and any(
                first_bytes(longer.characters[position]) & followers for position in next_right
            ):
                return True
            state = (_after(matched_left, shorter), next_right)
            if state not in seen and state[0] and state[1]:
                if len(seen) >= _MOST_STATES:
                    return True
                seen.add(state)
                waiting.append(state)
    return False


def _after(matched: frozenset[int], positions: Positions) -> frozenset[int]:
    return frozenset().union(*(positions.following[position] for position in matched))


def _steps(
    left: frozenset[int], right: frozenset[int], shorter: Positions, longer: Positions
) -> set[tuple[frozenset[int], frozenset[int]]]:
    """For every character, the positions of both sides that it matches."""
    boundaries: set[int] = set()
    for positions, of in ((left, shorter), (right, longer)):
        for position in positions:
            for first, last in of.characters[position]:
                boundaries |= {first, last + 1}
    pairs = set()
    for character in boundaries:
        matched_left = frozenset(p for p in left if _holds(shorter.characters[p], character))
        matched_right = frozenset(p for p in right if _holds(longer.characters[p], character))
        if matched_left and matched_right:
            pairs.add((matched_left, matched_right))
    return pairs


def _holds(ranges: Ranges, character: int) -> bool:
    return any(first <= character <= last for first, last in ranges)
