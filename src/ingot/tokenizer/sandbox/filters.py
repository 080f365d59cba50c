"""Filters that templates may use: those of Jinja that prompts have a use for.

Each takes the session first. Filters that Jinja evaluates late (`map`, `select`, ...)
work at once here and give a sequence that can be gone through one time, as Jinja's can.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jinja2.exceptions import TemplateRuntimeError
from jinja2.filters import make_attrgetter, make_multi_attrgetter
from jinja2.runtime import Undefined

from ingot.tokenizer.sandbox import methods, text_filters
from ingot.tokenizer.sandbox.limits import settled
from ingot.tokenizer.sandbox.operators import binary, percent
from ingot.tokenizer.sandbox.questions import TESTS
from ingot.tokenizer.sandbox.session import Session
from ingot.tokenizer.sandbox.text_filters import Filter, on_text


def _join(session: Session, value: Any, d: Any = "", attribute: Any = None) -> str:
    items = _list(session, value)
    if attribute is not None:
        items = _attributes(session, items, attribute)
    return methods.join(session, session.text(d), [session.text(item) for item in items])


def _sum(session: Session, value: Any, attribute: Any = None, start: Any = 0) -> Any:
    items = _list(session, value)
    if attribute is not None:
        items = _attributes(session, items, attribute)
    for item in items:
        start = binary(session, "+", start, item)
    return start


def _attributes(session: Session, items: Any, attribute: Any, default: Any = None) -> list[Any]:
    get = make_attrgetter(session.environment, attribute, default=default)
    return [_looked_up(session, attribute, get, item) for item in items]


def _looked_up(session: Session, attribute: Any, get: Callable[[Any], Any], item: Any) -> Any:
    """An attribute such as `function.name` of an item; every dot is a step."""
    session.meter.spend(1 + (len(attribute) if isinstance(attribute, str) else 0))
    return get(item)


def _compared(
    session: Session, case_sensitive: bool, attribute: Any, make: Callable[..., Any]
) -> Callable[[Any], Any]:
    """What of an item counts when items are sorted."""

    def fold(value: Any) -> Any:
        value = session.lift(value)
        return value.lower() if isinstance(value, str) and not case_sensitive else value

    get = make(session.environment, attribute, postprocess=fold)
    return lambda item: _looked_up(session, attribute, get, item)


def _list(session: Session, value: Any) -> list[Any]:
    if isinstance(value, str | list | tuple | dict | range):
        session.meter.foresee_items(len(value), made=isinstance(value, str | range))
    return list(value)


def _items(session: Session, value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Undefined):
        return iter([])
    if not isinstance(value, dict):
        raise TypeError("Can only get item pairs from a mapping.")
    return iter(methods.items(session, value))


def _first(session: Session, value: Any) -> Any:
    session.meter.spend(1)
    return next(iter(value), session.environment.undefined("there is no first item"))


def _last(session: Session, value: Any) -> Any:
    session.meter.spend(1)
    return next(reversed(settled(value)), session.environment.undefined("there is no last item"))


def _length(session: Session, value: Any) -> int:
    session.meter.spend(1)
    return len(value)


def _reverse(session: Session, value: Any) -> Any:
    if isinstance(value, str):
        session.meter.touch(len(value))
        return session.meter.keep(value[::-1])
    return iter(_list(session, value)[::-1])


def _sort(
    session: Session,
    value: Any,
    reverse: bool = False,
    case_sensitive: bool = False,
    attribute: Any = None,
) -> list[Any]:
    key = _compared(session, case_sensitive, attribute, make_multi_attrgetter)
    return sorted(_list(session, session.measured(value)), key=key, reverse=reverse)


def _dictsort(
    session: Session,
    value: dict[Any, Any],
    case_sensitive: bool = False,
    by: str = "key",
    reverse: bool = False,
) -> list[tuple[Any, Any]]:
    if by not in ("key", "value"):
        raise TemplateRuntimeError("dictsort sorts by key or by value")
    key = _compared(session, case_sensitive, 0 if by == "key" else 1, make_attrgetter)
    items = methods.items(session, session.measured(value))
    return sorted(items, key=key, reverse=reverse)


def _unique(
    session: Session, value: Any, case_sensitive: bool = False, attribute: Any = None
) -> Iterator[Any]:
    key = _compared(session, case_sensitive, attribute, make_attrgetter)
    first: dict[Any, Any] = {}
    for item in _list(session, session.measured(value)):
        first.setdefault(key(item), item)
    return iter(list(first.values()))


def _extreme(choose: Callable[..., Any]) -> Filter:
    def extreme(
        session: Session, value: Any, case_sensitive: bool = False, attribute: Any = None
    ) -> Any:
        key = _compared(session, case_sensitive, attribute, make_attrgetter)
        nothing = session.environment.undefined("the sequence is empty")
        return choose(_list(session, session.measured(value)), key=key, default=nothing)

    return extreme


def _default(session: Session, value: Any, default_value: Any = "", boolean: bool = False) -> Any:
    session.meter.spend(1)
    return default_value if isinstance(value, Undefined) or (boolean and not value) else value


def _map(session: Session, value: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
    items = _list(session, value)
    if not args and "attribute" in kwargs:
        return iter(_attributes(session, items, **kwargs))
    if not args:
        raise TemplateRuntimeError("map needs the name of a filter, or attribute=")
    apply = _named(FILTERS, args[0], "filter")
    session.meter.foresee_items(len(items), made=True)
    return iter([apply(session, item, *args[1:], **kwargs) for item in items])


def _selector(keep: bool, by_attribute: bool) -> Filter:
    def select(session: Session, value: Any, *args: Any) -> Iterator[Any]:
        items = _list(session, value)
        looked_at = items
        if by_attribute:
            if not args:
                raise TemplateRuntimeError("the name of an attribute is missing")
            looked_at, args = _attributes(session, items, args[0]), args[1:]
        test = _named(TESTS, args[0], "test") if args else lambda _, item: bool(item)
        pairs = zip(items, looked_at, strict=True)
        return iter([i for i, seen in pairs if bool(test(session, seen, *args[1:])) is keep])

    return select


def _named(table: Mapping[str, Filter], name: Any, what: str) -> Filter:
    if type(name) is not str or name not in table:
        raise TemplateRuntimeError(f"there is no such {what} for chat templates")
    return table[name]


FILTERS: Mapping[str, Filter] = {
    "abs": lambda _, value: abs(value),
    "capitalize": on_text(methods.METHODS[str]["capitalize"]),
    "count": _length,
    "d": _default,
    "default": _default,
    "dictsort": _dictsort,
    "e": text_filters.escape,
    "escape": text_filters.escape,
    "first": _first,
    "float": text_filters.to_float,
    "format": lambda session, value, *args: percent(session, session.text(value), args),
    "indent": text_filters.indent,
    "int": text_filters.to_int,
    "items": _items,
    "join": _join,
    "last": _last,
    "length": _length,
    "list": _list,
    "lower": on_text(methods.METHODS[str]["lower"]),
    "map": _map,
    "max": _extreme(max),
    "min": _extreme(min),
    "reject": _selector(keep=False, by_attribute=False),
    "rejectattr": _selector(keep=False, by_attribute=True),
    "replace": text_filters.replace,
    "reverse": _reverse,
    "round": text_filters.rounded,
    "safe": Session.text,
    "select": _selector(keep=True, by_attribute=False),
    "selectattr": _selector(keep=True, by_attribute=True),
    "sort": _sort,
    "string": Session.text,
    "sum": _sum,
    "title": text_filters.title,
    "tojson": text_filters.tojson,
    "trim": on_text(methods.strip),
    "unique": _unique,
    "upper": on_text(methods.METHODS[str]["upper"]),
    "wordcount": on_text(methods.asked(lambda text: sum(1 for _ in re.finditer(r"\w+", text)))),
}
