"""Filters that templates may use: the filters of Jinja that are useful for prompts.

Each takes the render state first. Filters that Jinja evaluates lazily (`map`, `select`, ...) run
at once here and give a sequence that can be iterated once, as Jinja's.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jinja2.exceptions import TemplateRuntimeError
from jinja2.filters import make_attrgetter, make_multi_attrgetter
from jinja2.runtime import Undefined

from ingot.tokenizer.sandbox import text_filters, value_methods
from ingot.tokenizer.sandbox.jinja_tests import TESTS
from ingot.tokenizer.sandbox.limits import settled
from ingot.tokenizer.sandbox.operators import binary, percent
from ingot.tokenizer.sandbox.render_state import RenderState
from ingot.tokenizer.sandbox.text_filters import Filter, on_text


def _join(state: RenderState, value: Any, d: Any = "", attribute: Any = None) -> str:
    items = _list(state, value)
    if attribute is not None:
        items = _attributes(state, items, attribute)
    return value_methods.join(state, state.text(d), [state.text(item) for item in items])


def _sum(state: RenderState, value: Any, attribute: Any = None, start: Any = 0) -> Any:
    items = _list(state, value)
    if attribute is not None:
        items = _attributes(state, items, attribute)
    for item in items:
        start = binary(state, "+", start, item)
    return start


def _attributes(state: RenderState, items: Any, attribute: Any, default: Any = None) -> list[Any]:
    get = make_attrgetter(state.environment, attribute, default=default)
    return [_looked_up(state, attribute, get, item) for item in items]


def _looked_up(state: RenderState, attribute: Any, get: Callable[[Any], Any], item: Any) -> Any:
    """An attribute such as `function.name` of an item; every dot costs a step."""
    state.meter.spend(1 + (len(attribute) if isinstance(attribute, str) else 0))
    return get(item)


def _compared(
    state: RenderState, case_sensitive: bool, attribute: Any, make: Callable[..., Any]
) -> Callable[[Any], Any]:
    """The sort key of an item."""

    def fold(value: Any) -> Any:
        value = state.original(value)
        return value.lower() if isinstance(value, str) and not case_sensitive else value

    get = make(state.environment, attribute, postprocess=fold)
    return lambda item: _looked_up(state, attribute, get, item)


def _list(state: RenderState, value: Any) -> list[Any]:
    if isinstance(value, str | list | tuple | dict | range):
        state.meter.foresee_items(len(value), made=isinstance(value, str | range))
    return list(value)


def _items(state: RenderState, value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Undefined):
        return iter([])
    if not isinstance(value, dict):
        raise TypeError("Can only get item pairs from a mapping.")
    return iter(value_methods.items(state, value))


def _first(state: RenderState, value: Any) -> Any:
    state.meter.spend(1)
    return next(iter(value), state.environment.undefined("there is no first item"))


def _last(state: RenderState, value: Any) -> Any:
    state.meter.spend(1)
    return next(reversed(settled(value)), state.environment.undefined("there is no last item"))


def _length(state: RenderState, value: Any) -> int:
    state.meter.spend(1)
    return len(value)


def _reverse(state: RenderState, value: Any) -> Any:
    if isinstance(value, str):
        state.meter.touch(len(value))
        return state.meter.keep(value[::-1])
    return iter(_list(state, value)[::-1])


def _sort(
    state: RenderState,
    value: Any,
    reverse: bool = False,
    case_sensitive: bool = False,
    attribute: Any = None,
) -> list[Any]:
    key = _compared(state, case_sensitive, attribute, make_multi_attrgetter)
    return sorted(_list(state, state.measured(value)), key=key, reverse=reverse)


def _dictsort(
    state: RenderState,
    value: dict[Any, Any],
    case_sensitive: bool = False,
    by: str = "key",
    reverse: bool = False,
) -> list[tuple[Any, Any]]:
    if by not in ("key", "value"):
        raise TemplateRuntimeError("dictsort sorts by key or by value")
    key = _compared(state, case_sensitive, 0 if by == "key" else 1, make_attrgetter)
    items = value_methods.items(state, state.measured(value))
    return sorted(items, key=key, reverse=reverse)


def _unique(
    state: RenderState, value: Any, case_sensitive: bool = False, attribute: Any = None
) -> Iterator[Any]:
    key = _compared(state, case_sensitive, attribute, make_attrgetter)
    first: dict[Any, Any] = {}
    for item in _list(state, state.measured(value)):
        first.setdefault(key(item), item)
    return iter(list(first.values()))


def _extreme(choose: Callable[..., Any]) -> Filter:
    def extreme(
        state: RenderState, value: Any, case_sensitive: bool = False, attribute: Any = None
    ) -> Any:
        key = _compared(state, case_sensitive, attribute, make_attrgetter)
        nothing = state.environment.undefined("the sequence is empty")
        return choose(_list(state, state.measured(value)), key=key, default=nothing)

    return extreme


def _default(state: RenderState, value: Any, default_value: Any = "", boolean: bool = False) -> Any:
    state.meter.spend(1)
    return default_value if isinstance(value, Undefined) or (boolean and not value) else value


def _map(state: RenderState, value: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
    items = _list(state, value)
    if not args and "attribute" in kwargs:
        return iter(_attributes(state, items, **kwargs))
    if not args:
        raise TemplateRuntimeError("map needs the name of a filter, or attribute=")
    apply = _named(FILTERS, args[0], "filter")
    state.meter.foresee_items(len(items), made=True)
    return iter([apply(state, item, *args[1:], **kwargs) for item in items])


def _selector(keep: bool, by_attribute: bool) -> Filter:
    def select(state: RenderState, value: Any, *args: Any) -> Iterator[Any]:
        items = _list(state, value)
        looked_at = items
        if by_attribute:
            if not args:
                raise TemplateRuntimeError("the name of an attribute is missing")
            looked_at, args = _attributes(state, items, args[0]), args[1:]
        test = _named(TESTS, args[0], "test") if args else lambda _, item: bool(item)
        pairs = zip(items, looked_at, strict=True)
        return iter([i for i, seen in pairs if bool(test(state, seen, *args[1:])) is keep])

    return select


def _word_count(text: str) -> int:
    return sum(1 for _ in re.finditer(r"\w+", text))


def _named(table: Mapping[str, Filter], name: Any, what: str) -> Filter:
    if type(name) is not str or name not in table:
        raise TemplateRuntimeError(f"chat templates have no such {what}")
    return table[name]


FILTERS: Mapping[str, Filter] = {
    "abs": lambda _, value: abs(value),
    "capitalize": on_text(value_methods.METHODS[str]["capitalize"]),
    "count": _length,
    "d": _default,
    "default": _default,
    "dictsort": _dictsort,
    "e": text_filters.escape,
    "escape": text_filters.escape,
    "first": _first,
    "float": text_filters.to_float,
    "format": lambda state, value, *args: percent(state, state.text(value), args),
    "indent": text_filters.indent,
    "int": text_filters.to_int,
    "items": _items,
    "join": _join,
    "last": _last,
    "length": _length,
    "list": _list,
    "lower": on_text(value_methods.METHODS[str]["lower"]),
    "map": _map,
    "max": _extreme(max),
    "min": _extreme(min),
    "reject": _selector(keep=False, by_attribute=False),
    "rejectattr": _selector(keep=False, by_attribute=True),
    "replace": text_filters.replace,
    "reverse": _reverse,
    "round": text_filters.rounded,
    "safe": RenderState.text,
    "select": _selector(keep=True, by_attribute=False),
    "selectattr": _selector(keep=True, by_attribute=True),
    "sort": _sort,
    "string": RenderState.text,
    "sum": _sum,
    "title": text_filters.title,
    "tojson": text_filters.tojson,
    "trim": on_text(value_methods.strip),
    "unique": _unique,
    "upper": on_text(value_methods.METHODS[str]["upper"]),
    "wordcount": on_text(value_methods.asked(_word_count)),
}
