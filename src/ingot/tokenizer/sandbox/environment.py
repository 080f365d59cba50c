"""Jinja's immutable sandbox, narrowed from what is forbidden to what is allowed.

A running template reaches values, attributes and functions only through here, and finds
only what the tables of `methods`, `functions`, `filters` and `questions` name.
"""

from collections.abc import Callable
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_context

from ingot.tokenizer.sandbox import operators
from ingot.tokenizer.sandbox.filters import FILTERS
from ingot.tokenizer.sandbox.functions import FUNCTIONS
from ingot.tokenizer.sandbox.methods import METHODS, VALUES
from ingot.tokenizer.sandbox.questions import TESTS
from ingot.tokenizer.sandbox.session import Operation, Session


class RenderContext(Context):
    """The variables of a render, and its session."""

    session: Session


def _with_session(operation: Callable[..., Any]) -> Callable[..., Any]:
    @pass_context
    def call(context: RenderContext, *args: Any, **kwargs: Any) -> Any:
        return operation(context.session, *args, **kwargs)

    return call


def _step(session: Session, steps: int, memory: int) -> bool:
    session.meter.spend(steps)
    session.meter.hold(memory)
    return True


def _item(session: Session, value: Any, name: Any) -> Any:
    """`value[name]`, with a name that a message may have said."""
    if type(value) is dict and type(name) is str and name not in value:
        name = session.lift(name)
    return session.environment.getitem(value, name)


# What the compiler puts in place of syntax. No template can write these names.
_SYNTAX: dict[str, Callable[..., Any]] = {
    "@step": _step,
    "@item": _item,
    "@concatenate": operators.concatenate,
    "@compare": operators.compare,
    "@slice": operators.slice_of,
    "@key": operators.key,
}


class _Generation(Extension):
    """`{% generation %}`, which marks what the model is trained to write, as a plain block."""

    tags = {"generation"}  # noqa: RUF012 (declared by Jinja)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment that chat templates are compiled for and run in."""

    context_class = RenderContext
    intercepted_binops = operators.BINARY

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            # Nothing is computed while compiling, where no meter runs.
            optimized=False,
            finalize=_with_session(Session.write),
            extensions=[loopcontrols, _Generation],
        )
        operations = {**FILTERS, **_SYNTAX}
        self.filters = {name: _with_session(function) for name, function in operations.items()}
        self.tests = {name: _with_session(function) for name, function in TESTS.items()}
        self.globals = dict(FUNCTIONS)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """`obj.attribute`: a method first, then an item."""
        kind = type(obj)
        if attribute in METHODS.get(kind, ()):
            return Operation(METHODS[kind][attribute], (obj,))
        if kind is dict and attribute in obj:
            return obj[attribute]
        return self._value(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """`obj[argument]`: an item first, then a method."""
        if type(argument) in (tuple, list, dict):
            raise TypeError(f"a {type(argument).__name__} cannot be looked up")
        if type(obj) in (dict, list, tuple, str, range):
            try:
                return obj[argument]
            except (TypeError, LookupError):
                pass
        if type(argument) is str:
            return self.getattr(obj, argument)
        return self._value(obj, argument)

    def _value(self, obj: Any, name: Any) -> Any:
        kind = type(obj)
        if isinstance(obj, Undefined):
            return obj[name]  # raises: it is undefined
        if name in VALUES.get(kind, ()):
            return getattr(obj, name)
        if kind is not dict and isinstance(name, str):
            if name.startswith("_") or (kind is not Namespace and hasattr(kind, name)):
                raise SecurityError(f"{name!r} of a {kind.__name__} is not for templates")
            if kind is Namespace:
                return getattr(obj, name, self.undefined(obj=obj, name=name))
        return self.undefined(obj=obj, name=name)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """`left operator right`."""
        assert isinstance(context, RenderContext)
        return operators.binary(context.session, operator, left, right)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """`obj(...)`."""
        assert isinstance(context, RenderContext)
        kwargs.pop("_loop_vars", None)
        session = context.session
        session.enter_call()
        try:
            if type(obj) is Operation:
                return obj.function(session, *obj.owner, *args, **kwargs)
            if isinstance(obj, Macro | LoopContext | Undefined):
                return obj(*args, **kwargs)
        finally:
            session.leave_call()
        raise SecurityError(f"a {type(obj).__name__} cannot be called")
