"""One render: what its operations share.

A `Session` holds the meter that counts what a render uses up and the disguise that its
texts wear. Operations (operators, methods, filters, functions) take it first. It does
not know which operations there are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jinja2.runtime import Undefined
from jinja2.sandbox import SandboxedEnvironment

from ingot.tokenizer.sandbox.disguise import Disguise
from ingot.tokenizer.sandbox.limits import LimitError, Meter, settled

# A chain of macros this long is a loop; Python's own limit may be far off.
_MAX_CALLS = 50
# How much longer the text of a list is than the texts in it, escapes included.
REPR_GROWTH = 4


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """Something a template can call: a function of ours and what it belongs to."""

    function: Callable[..., Any]
    owner: tuple[Any, ...] = ()


class Session:
    """The state of one render."""

    __slots__ = ("_calls", "disguise", "environment", "meter")

    def __init__(self, environment: SandboxedEnvironment, meter: Meter, disguise: Disguise) -> None:
        self.environment = environment
        self.meter = meter
        self.disguise = disguise
        self._calls = 0

    def enter_call(self) -> None:
        """Count a call; every one is followed by `leave_call`."""
        self._calls += 1
        if self._calls > _MAX_CALLS:
            raise LimitError(f"it nested more than {_MAX_CALLS} calls")

    def leave_call(self) -> None:
        """A call that was entered is over."""
        self._calls -= 1

    def text(self, value: Any) -> str:
        """A value as the text that printing it gives."""
        if type(value) is str:
            return value
        if isinstance(value, Undefined):
            return str(value)
        self.meter.foresee(REPR_GROWTH * self.meter.weigh(value, data_only=True))
        return self.meter.keep(str(value))

    def write(self, value: Any) -> str:
        """A value as output."""
        return self.meter.write(value if type(value) is str else self.text(value))

    def lift(self, value: Any) -> Any:
        """A text as it was said; anything else as it is."""
        return self.disguise.lift(value) if type(value) is str else value

    def lift_all(self, value: Any) -> Any:
        """A value that has been measured, with the texts in it as they were said."""
        if not self.disguise.active:
            return value
        kind = type(value)
        if kind in (list, tuple):
            return kind(map(self.lift_all, value))
        if kind is dict:
            return {self.lift_all(key): self.lift_all(item) for key, item in value.items()}
        return self.lift(value)

    def measured(self, value: Any) -> Any:
        """A value to be looked at as a whole, after counting the work of it."""
        value = settled(value)
        self.meter.weigh(value)
        return value
