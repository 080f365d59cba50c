"""Functions that templates know without defining them.

The table at the end is all there is. Each function takes the session first.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from jinja2.exceptions import SecurityError, TemplateRuntimeError
from jinja2.utils import Cycler, Joiner, Namespace

from ingot.tokenizer.sandbox.limits import LimitError, settled
from ingot.tokenizer.sandbox.session import Operation, Session

_MAX_RANGE = 100_000
_MAX_DATE_FORMAT = 200
# Bytes of an object with a dict.
_OBJECT = 512


def _range(session: Session, *args: int) -> range:
    numbers = range(*args)
    # `len` of a range fails for some large ones, the difference of its ends does not.
    if abs(numbers.stop - numbers.start) // abs(numbers.step) > _MAX_RANGE:
        raise LimitError(f"it asked for a range of more than {_MAX_RANGE:,} numbers")
    session.meter.spend(1)
    return numbers


def _dict(session: Session, *args: Any, **kwargs: Any) -> dict[Any, Any]:
    return session.meter.keep(dict(*session.measured([settled(arg) for arg in args]), **kwargs))


def _namespace(session: Session, *args: Any, **kwargs: Any) -> Namespace:
    values = _dict(session, *args, **kwargs)
    if any(not isinstance(name, str) or name.startswith("_") for name in values):
        raise SecurityError("names in a namespace must not begin with an underscore")
    session.meter.hold(_OBJECT)
    return Namespace(values)


def _cycler(session: Session, *items: Any) -> Cycler:
    session.meter.hold(_OBJECT)
    return Cycler(*items)


def _joiner(session: Session, sep: str = ", ") -> Operation:
    session.meter.hold(_OBJECT)
    joiner = Joiner(sep)
    return Operation(lambda _: joiner())


def _raise_exception(session: Session, message: Any) -> None:
    raise TemplateRuntimeError(session.lift(session.text(message)))


def now() -> datetime:
    """The time that `strftime_now` shows."""
    return datetime.now()


def _strftime_now(session: Session, date_format: str) -> str:
    if len(date_format) > _MAX_DATE_FORMAT:
        raise LimitError("it asked for a date in more words than a date has")
    return session.meter.keep(now().strftime(session.lift(date_format)))


FUNCTIONS: Mapping[str, Operation] = {
    "range": Operation(_range),
    "dict": Operation(_dict),
    "namespace": Operation(_namespace),
    "cycler": Operation(_cycler),
    "joiner": Operation(_joiner),
    "raise_exception": Operation(_raise_exception),
    "strftime_now": Operation(_strftime_now),
}
