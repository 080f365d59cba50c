"""Global functions of templates. The table at the end lists all of them.

Each takes the render state first.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from jinja2.exceptions import SecurityError, TemplateRuntimeError
from jinja2.utils import Cycler, Joiner, Namespace

from ingot.tokenizer.sandbox.limits import LimitError, settled
from ingot.tokenizer.sandbox.render_state import Operation, RenderState

_MAX_RANGE = 100_000
_MAX_DATE_FORMAT = 200
# Bytes of an object with attributes.
_OBJECT = 512


def _range(state: RenderState, *args: int) -> range:
    numbers = range(*args)
    # `len` fails for some large ranges, the difference of the ends does not.
    if abs(numbers.stop - numbers.start) // abs(numbers.step) > _MAX_RANGE:
        raise LimitError(f"it asked for a range of more than {_MAX_RANGE:,} numbers")
    state.meter.spend(1)
    return numbers


def _dict(state: RenderState, *args: Any, **kwargs: Any) -> dict[Any, Any]:
    return state.meter.keep(dict(*state.measured([settled(arg) for arg in args]), **kwargs))


def _namespace(state: RenderState, *args: Any, **kwargs: Any) -> Namespace:
    values = _dict(state, *args, **kwargs)
    if any(not isinstance(name, str) or name.startswith("_") for name in values):
        raise SecurityError("names in a namespace must not begin with an underscore")
    state.meter.hold(_OBJECT)
    return Namespace(values)


def _cycler(state: RenderState, *items: Any) -> Cycler:
    state.meter.hold(_OBJECT)
    return Cycler(*items)


def _joiner(state: RenderState, sep: str = ", ") -> Operation:
    state.meter.hold(_OBJECT)
    joiner = Joiner(sep)
    return Operation(lambda _: joiner())


def _raise_exception(state: RenderState, message: Any) -> None:
    raise TemplateRuntimeError(state.original(state.text(message)))


def now() -> datetime:
    """The time that `strftime_now` shows."""
    return datetime.now()


def _strftime_now(state: RenderState, date_format: str) -> str:
    if len(date_format) > _MAX_DATE_FORMAT:
        raise LimitError(f"it asked for a date format of more than {_MAX_DATE_FORMAT} characters")
    return state.meter.keep(now().strftime(state.original(date_format)))


FUNCTIONS: Mapping[str, Operation] = {
    "range": Operation(_range),
    "dict": Operation(_dict),
    "namespace": Operation(_namespace),
    "cycler": Operation(_cycler),
    "joiner": Operation(_joiner),
    "raise_exception": Operation(_raise_exception),
    "strftime_now": Operation(_strftime_now),
}
