"""Operators of templates: arithmetic, concatenation, comparison, slices.

Each works out what its result will take before it makes it. Texts are compared as they
were said (see `disguise`); what is built from them keeps its stand-ins.
"""

import operator
import re
from collections.abc import Callable
from typing import Any

from ingot.tokenizer.sandbox.limits import LimitError, is_number, settled
from ingot.tokenizer.sandbox.session import REPR_GROWTH, Session

_MAX_BITS = 1024
_MAX_WIDTH = 1000
# Digits that the largest number has when it is written out.
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


def binary(session: Session, symbol: str, left: Any, right: Any) -> Any:
    """`left symbol right`."""
    if symbol == "+" and type(left) is type(right) and type(left) in (str, list, tuple):
        return _joined(session, left, right)
    if is_number(left) and is_number(right):
        return _number(symbol, left, right)
    if symbol == "*":
        for sequence, count in ((left, right), (right, left)):
            if type(sequence) in (str, list, tuple) and isinstance(count, int):
                return _repeated(session, sequence, count)
    if symbol == "%" and type(left) is str:
        return percent(session, left, right)
    # What is left is an error, which Python words best.
    return _ARITHMETIC[symbol](_shallow(left), _shallow(right))


def _shallow(value: Any) -> Any:
    """The value, or an empty one of its kind: enough for an error message."""
    return type(value)() if type(value) in (str, list, tuple, dict) else value


def _number(symbol: str, left: Any, right: Any) -> Any:
    bits = max(number.bit_length() for number in (left, right, 0) if isinstance(number, int))
    if symbol == "**" and isinstance(left, int) and isinstance(right, int):
        bits = max(bits, left.bit_length() * right)
    if bits > _MAX_BITS:
        raise LimitError("it computed with numbers too large for a prompt")
    return _ARITHMETIC[symbol](left, right)


def _joined(session: Session, left: Any, right: Any) -> Any:
    if type(left) is str:
        session.meter.foresee(len(left) + len(right))
    else:
        session.meter.foresee_items(len(left) + len(right))
    return session.meter.keep(left + right)


def _repeated(session: Session, sequence: Any, count: int) -> Any:
    size = len(sequence) * max(count, 0)
    if type(sequence) is str:
        session.meter.foresee(size)
    else:
        session.meter.foresee_items(size)
    return session.meter.keep(sequence * count)


def percent(session: Session, pattern: str, values: Any) -> str:
    """`pattern % values`, with widths that a text can have."""
    session.meter.touch(len(pattern))
    expected = len(pattern)
    weight = REPR_GROWTH * session.meter.weigh(values, data_only=True)
    for conversion in _CONVERSION.finditer(pattern):
        width, precision, kind = conversion.groups(default="")
        if kind == "%":
            continue
        if kind not in "sdifgexXc":
            raise LimitError(f"%{kind} is not a conversion that templates may use")
        expected += weight + check_width(width) + check_width(precision) + _MAX_FLOAT
        session.meter.foresee(expected)
    text: str = pattern % settled(values)
    return session.meter.keep(text)


def check_width(number: str) -> int:
    """A width or precision, which must be small and fixed."""
    if number == "*" or (number and (len(number) > 4 or int(number) > _MAX_WIDTH)):
        raise LimitError(f"it asked for a width of {number[:20]}; {_MAX_WIDTH} is the most")
    return int(number or 0)


def concatenate(session: Session, *values: Any) -> str:
    """`a ~ b ~ c`."""
    texts = [value if type(value) is str else session.text(value) for value in values]
    session.meter.foresee(sum(map(len, texts)))
    return session.meter.keep("".join(texts))


def compare(session: Session, left: Any, *rest: Any) -> Any:
    """`left op right op right ...`, given as left, op, right, op, right."""
    result: Any = True
    for name, right in zip(rest[::2], rest[1::2], strict=True):
        result = compare_two(session, name, left, right)
        if not result:
            break
        left = right
    return result


def compare_two(session: Session, name: str, left: Any, right: Any) -> bool:
    """`left op right`."""
    left, right = session.measured(left), session.measured(right)
    return _COMPARISONS[name](session.lift_all(left), session.lift_all(right))


def slice_of(session: Session, value: Any, start: Any, stop: Any, step: Any) -> Any:
    """`value[start:stop:step]`."""
    if type(value) in (str, list, tuple):
        session.meter.touch(len(value))
        return session.meter.keep(value[start:stop:step])
    return _shallow(value)[start:stop:step]


def key(session: Session, value: Any) -> Any:
    """A key of a dict that a template writes: a text or a number."""
    session.meter.spend(1)
    if type(value) in (list, tuple, dict):
        raise TypeError(f"a {type(value).__name__} cannot be the key of a dict")
    return value
