"""The syntax tree of a GBNF grammar.

All nodes are frozen and hashable, so equal pieces are one key. Characters are sets of ranges.
"""

from dataclasses import dataclass

LAST_CHARACTER = 0x10FFFF
Ranges = tuple[tuple[int, int], ...]  # sorted, not touching, both ends included


@dataclass(frozen=True, slots=True)
class Characters:
    """One character of a set."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Sequence:
    """Parts one after the other; without parts, the empty text."""

    parts: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several options."""

    options: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part repeated `least` to `most` times; None: no upper bound."""

    part: "Expression"
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Reference:
    """The use of a rule by its name."""

    name: str


@dataclass(frozen=True, slots=True)
class ControlToken:
    """A control token, by its id."""

    id: int


Expression = Characters | Sequence | Choice | Repeat | Reference | ControlToken


def ranges_of(points: list[tuple[int, int]]) -> Ranges:
    """Sort ranges and join those that touch."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(points):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return tuple(joined)


def complement(ranges: Ranges) -> Ranges:
    """All other characters."""
    others, start = [], 0
    for first, last in ranges:
        if start < first:
            others.append((start, first - 1))
        start = last + 1
    if start <= LAST_CHARACTER:
        others.append((start, LAST_CHARACTER))
    return tuple(others)


def literal(text: str) -> Expression:
    """A text as a sequence of its characters."""
    parts = tuple(Characters(((ord(letter), ord(letter)),)) for letter in text)
    return parts[0] if len(parts) == 1 else Sequence(parts)
