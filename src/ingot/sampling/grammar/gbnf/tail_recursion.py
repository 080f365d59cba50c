"""Tail recursion of rules, rewritten as repetition.

`ws ::= ([ \\t] ws)?` is `[ \\t]*`: without recursion it may become part of a terminal. Other
recursion stays.
"""

from collections.abc import Mapping

from ingot.sampling.grammar.gbnf.expressions import (
    Choice,
    Expression,
    Reference,
    Repeat,
    Sequence,
)
from ingot.sampling.grammar.gbnf.parse import references

_EMPTY = Sequence(())


def without_tail_recursion(rules: Mapping[str, Expression]) -> Mapping[str, Expression]:
    """The same rules, with repetition in place of tail recursion."""
    return {name: _unrolled(name, expression) for name, expression in rules.items()}


def _unrolled(name: str, expression: Expression) -> Expression:
    if name not in references(expression):
        return expression
    loops: list[Expression] = []
    ends: list[Expression] = []
    for parts in _ways(expression):
        *before, last = parts or (_EMPTY,)
        calls = last == Reference(name)
        rest = Sequence(tuple(before)) if calls else Sequence(tuple(parts))
        if name in references(rest):
            return expression  # recursive in another place, too
        if not calls:
            ends.append(rest)
        elif before:  # a rule that is only itself adds nothing
            loops.append(rest)
    if not ends:
        return expression
    repeated = [Repeat(_one_of(loops), 0, None)] if loops else []
    return Sequence((*repeated, _one_of(ends)))


def _ways(expression: Expression) -> list[tuple[Expression, ...]]:
    """The alternatives of an expression, as sequences."""
    match expression:
        case Choice(options):
            return [way for option in options for way in _ways(option)]
        case Repeat(part, 0, 1):
            return [(), *_ways(part)]
        case Sequence(parts):
            return [parts]
        case _:
            return [(expression,)]


def _one_of(options: list[Expression]) -> Expression:
    return options[0] if len(options) == 1 else Choice(tuple(options))
