"""Jinja's immutable sandbox, restricted to an allowlist.

A running template reaches values, attributes and functions only through this environment, and
finds only what is in the tables of `value_methods`, `functions`, `filters` and `jinja_tests`.
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
from ingot.tokenizer.sandbox.jinja_tests import TESTS
from ingot.tokenizer.sandbox.render_state import Operation, RenderState
from ingot.tokenizer.sandbox.value_methods import METHODS, VALUES


class RenderContext(Context):
    """The variables of a render, and its `RenderState`."""

    state: RenderState


def _with_state(operation: Callable[..., Any]) -> Callable[..., Any]:
    @pass_context
    def call(context: RenderContext, *args: Any, **kwargs: Any) -> Any:
        return operation(context.state, *args, **kwargs)

    return call


def _step(state: RenderState, steps: int, memory: int) -> bool:
    state.meter.spend(steps)
    state.meter.hold(memory)
    return True


def _item(state: RenderState, value: Any, name: Any) -> Any:
    """`value[name]`, with a name that may come from a message."""
    if type(value) is dict and type(name) is str and name not in value:
        name = state.original(name)
    return state.environment.getitem(value, name)


# Operations that replace syntax in the compiled template. Templates cannot spell these names.
_SYNTAX: dict[str, Callable[..., Any]] = {
    "@step": _step,
    "@item": _item,
    "@concatenate": operators.concatenate,
    "@compare": operators.compare,
    "@slice": operators.slice_of,
    "@key": operators.key,
}


class _Generation(Extension):
    """`{% generation %}`, which marks what a model is trained on, as a plain block."""

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
            # Constants are not folded at compile time, because no meter counts there.
            optimized=False,
            finalize=_with_state(RenderState.write),
            extensions=[loopcontrols, _Generation],
        )
        operations = {**FILTERS, **_SYNTAX}
        self.filters = {name: _with_state(function) for name, function in operations.items()}
        self.tests = {name: _with_state(function) for name, function in TESTS.items()}
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
                raise SecurityError(f"templates may not access {name!r} of a {kind.__name__}")
            if kind is Namespace:
                return getattr(obj, name, self.undefined(obj=obj, name=name))
        return self.undefined(obj=obj, name=name)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """`left operator right`."""
        assert isinstance(context, RenderContext)
        return operators.binary(context.state, operator, left, right)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """`obj(...)`."""
        assert isinstance(context, RenderContext)
        kwargs.pop("_loop_vars", None)
        state = context.state
        state.enter_call()
        try:
            if type(obj) is Operation:
                return obj.function(state, *obj.owner, *args, **kwargs)
            if isinstance(obj, Macro | LoopContext | Undefined):
                return obj(*args, **kwargs)
        finally:
            state.leave_call()
        raise SecurityError(f"a {type(obj).__name__} cannot be called")
