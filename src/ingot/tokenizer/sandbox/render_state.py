"""RenderState: what the operations of one render share.

It has the meter that counts the cost of the render and the placeholders of its texts. Operations
(operators, methods, filters, functions) take it as their first argument. It does not know which
operations there are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jinja2.runtime import Undefined
from jinja2.sandbox import SandboxedEnvironment

from ingot.tokenizer.sandbox.limits import LimitError, Meter, settled
from ingot.tokenizer.sandbox.placeholders import Placeholders

# A chain of macros this long is a loop. Python's recursion limit may be much higher.
_MAX_CALLS = 50
# How many times longer the text of a list is than the texts in it, with escapes.
REPR_GROWTH = 4


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """A function that a template can call, bound to a value if it is a method."""

    function: Callable[..., Any]
    owner: tuple[Any, ...] = ()


class RenderState:
    """The meter, placeholders and call depth of one render."""

    __slots__ = ("_calls", "environment", "meter", "placeholders")

    def __init__(
        self, environment: SandboxedEnvironment, meter: Meter, placeholders: Placeholders
    ) -> None:
        self.environment = environment
        self.meter = meter
        self.placeholders = placeholders
        self._calls = 0

    def enter_call(self) -> None:
        """Count a call; every one is followed by `leave_call`."""
        self._calls += 1
        if self._calls > _MAX_CALLS:
            raise LimitError(f"it nested more than {_MAX_CALLS} calls")

    def leave_call(self) -> None:
        """Count the end of a call."""
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

    def original(self, value: Any) -> Any:
        """A text with its original characters; other values unchanged."""
        return self.placeholders.original(value) if type(value) is str else value

    def original_all(self, value: Any) -> Any:
        """A measured value, with the original characters of all its texts."""
        if not self.placeholders.active:
            return value
        kind = type(value)
        if kind in (list, tuple):
            return kind(map(self.original_all, value))
        if kind is dict:
            return {self.original_all(key): self.original_all(item) for key, item in value.items()}
        return self.original(value)

    def measured(self, value: Any) -> Any:
        """A value that an operation looks at as a whole; counts the work for it."""
        value = settled(value)
        self.meter.weigh(value)
        return value
