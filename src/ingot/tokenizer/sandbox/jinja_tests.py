"""Jinja tests (`x is defined`) that templates may use.

Each takes the render state first. Texts are compared by their original characters.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

from jinja2.runtime import Macro
from jinja2.tests import TESTS as JINJA_TESTS

from ingot.tokenizer.sandbox.limits import is_number
from ingot.tokenizer.sandbox.operators import binary, compare_two
from ingot.tokenizer.sandbox.render_state import Operation, RenderState
from ingot.tokenizer.sandbox.text_filters import on_text
from ingot.tokenizer.sandbox.value_methods import METHODS

Test = Callable[..., bool]


def _simple(test: Callable[..., Any]) -> Test:
    """A test of Jinja that looks only at the type of a value."""
    return lambda _, value, *args: test(value, *args)


def _comparison(name: str) -> Test:
    return lambda state, value, other: compare_two(state, name, value, other)


def _divisible(state: RenderState, value: Any, number: Any) -> bool:
    if not is_number(value):
        raise TypeError("only numbers can be divided")  # for texts, "%" formats
    return bool(binary(state, "%", value, number) == 0)


_COMPARISON_NAMES = {
    "eq": ("eq", "equalto", "=="),
    "ne": ("ne", "!="),
    "lt": ("lt", "lessthan", "<"),
    "lteq": ("le", "<="),
    "gt": ("gt", "greaterthan", ">"),
    "gteq": ("ge", ">="),
    "in": ("in",),
}
_KINDS = (
    *("boolean", "defined", "false", "float", "integer", "iterable", "mapping", "none"),
    *("number", "sameas", "sequence", "string", "true", "undefined"),
)

TESTS: Mapping[str, Test] = {
    **{name: _simple(cast("Test", JINJA_TESTS[name])) for name in _KINDS},
    **{
        name: _comparison(comparison)
        for comparison, names in _COMPARISON_NAMES.items()
        for name in names
    },
    "callable": lambda _, value: isinstance(value, Operation | Macro),
    "divisibleby": _divisible,
    "even": lambda state, value: _divisible(state, value, 2),
    "lower": on_text(METHODS[str]["islower"]),
    "odd": lambda state, value: not _divisible(state, value, 2),
    "upper": on_text(METHODS[str]["isupper"]),
}
