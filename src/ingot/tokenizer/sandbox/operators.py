"""Operators of templates: arithmetic, concatenation, comparison, slices.

Each counts the cost of its result before it creates it. Texts are compared by their original
characters (see placeholders.py); texts that are built from them keep their placeholders.
"""

import operator
import re
from collections.abc import Callable
from typing import Any

from ingot.tokenizer.sandbox.limits import LimitError, is_number, settled
from ingot.tokenizer.sandbox.render_state import REPR_GROWTH, RenderState

_MAX_BITS = 1024
_MAX_WIDTH = 1000
# Digits of the largest float.
_MAX_FLOAT = 320

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}
BINARY = frozenset(_ARITHMETIC)

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
    "in": lambda item, container: item in container,
    "notin": lambda item, container: item not in container,
}

# One conversion of a %-format: flags, width, precision, kind.
_CONVERSION = re.compile(
    r"%(?:\([^)]{0,99}\))?[#0\- +]*(\*|\d*)(?:\.(\*|\d*))?[hlL]?(.?)", re.DOTALL
)


def binary(state: RenderState, symbol: str, left: Any, right: Any) -> Any:
    """`left symbol right`."""
    if symbol == "+" and type(left) is type(right) and type(left) in (str, list, tuple):
        return _joined(state, left, right)
    if is_number(left) and is_number(right):
        return _number(symbol, left, right)
    if symbol == "*":
        for sequence, count in ((left, right), (right, left)):
            if type(sequence) in (str, list, tuple) and isinstance(count, int):
                return _repeated(state, sequence, count)
    if symbol == "%" and type(left) is str:
        return percent(state, left, right)
    # The rest is an error; Python has the best message.
    return _ARITHMETIC[symbol](_shallow(left), _shallow(right))


def _shallow(value: Any) -> Any:
    """The value, or an empty one of its type: enough for an error message."""
    return type(value)() if type(value) in (str, list, tuple, dict) else value


def _number(symbol: str, left: Any, right: Any) -> Any:
    bits = max(number.bit_length() for number in (left, right, 0) if isinstance(number, int))
    if symbol == "**" and isinstance(left, int) and isinstance(right, int):
        bits = max(bits, left.bit_length() * right)
    if bits > _MAX_BITS:
        raise LimitError(f"it computed with numbers of more than {_MAX_BITS} bits")
    return _ARITHMETIC[symbol](left, right)


def _joined(state: RenderState, left: Any, right: Any) -> Any:
    if type(left) is str:
        state.meter.foresee(len(left) + len(right))
    else:
        state.meter.foresee_items(len(left) + len(right))
    return state.meter.keep(left + right)


def _repeated(state: RenderState, sequence: Any, count: int) -> Any:
    size = len(sequence) * max(count, 0)
    if type(sequence) is str:
        state.meter.foresee(size)
    else:
        state.meter.foresee_items(size)
    return state.meter.keep(sequence * count)


def percent(state: RenderState, pattern: str, values: Any) -> str:
    """`pattern % values`, with bounded widths."""
    state.meter.touch(len(pattern))
    expected = len(pattern)
    weight = REPR_GROWTH * state.meter.weigh(values, data_only=True)
    for conversion in _CONVERSION.finditer(pattern):
        width, precision, kind = conversion.groups(default="")
        if kind == "%":
            continue
        if kind not in "sdifgexXc":
            raise LimitError(f"templates may not use the conversion %{kind}")
        expected += weight + check_width(width) + check_width(precision) + _MAX_FLOAT
        state.meter.foresee(expected)
    text: str = pattern % settled(values)
    return state.meter.keep(text)


def check_width(number: str) -> int:
    """A width or precision, which must be a small constant."""
    if number == "*" or (number and (len(number) > 4 or int(number) > _MAX_WIDTH)):
        raise LimitError(f"it asked for a width of {number[:20]}; at most {_MAX_WIDTH} is allowed")
    return int(number or 0)


def concatenate(state: RenderState, *values: Any) -> str:
    """`a ~ b ~ c`."""
    texts = [value if type(value) is str else state.text(value) for value in values]
    state.meter.foresee(sum(map(len, texts)))
    return state.meter.keep("".join(texts))


def compare(state: RenderState, left: Any, *rest: Any) -> Any:
    """`left op right op right ...`, given as left, op, right, op, right."""
    result: Any = True
    for name, right in zip(rest[::2], rest[1::2], strict=True):
        result = compare_two(state, name, left, right)
        if not result:
            break
        left = right
    return result


def compare_two(state: RenderState, name: str, left: Any, right: Any) -> bool:
    """`left op right`."""
    left, right = state.measured(left), state.measured(right)
    return _COMPARISONS[name](state.original_all(left), state.original_all(right))


def slice_of(state: RenderState, value: Any, start: Any, stop: Any, step: Any) -> Any:
    """`value[start:stop:step]`."""
    if type(value) in (str, list, tuple):
        state.meter.touch(len(value))
        return state.meter.keep(value[start:stop:step])
    return _shallow(value)[start:stop:step]


def key(state: RenderState, value: Any) -> Any:
    """A key of a dict literal: a text or a number."""
    state.meter.spend(1)
    if type(value) in (list, tuple, dict):
        raise TypeError(f"a {type(value).__name__} cannot be the key of a dict")
    return value
