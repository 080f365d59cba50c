"""Filters and tests that templates may use: those of Jinja that prompts have a use for.

Each takes the session first. Filters that Jinja evaluates late (`map`, `select`, ...)
work at once here and give a sequence that can be gone through one time, as Jinja's can.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from jinja2.exceptions import TemplateRuntimeError
from jinja2.filters import do_title, make_attrgetter, make_multi_attrgetter
from jinja2.runtime import Macro, Undefined
from jinja2.tests import TESTS as JINJA_TESTS

from ingot.tokenizer.sandbox import methods
from ingot.tokenizer.sandbox.limits import LimitError, is_number, settled
from ingot.tokenizer.sandbox.operators import binary, compare_two, percent
from ingot.tokenizer.sandbox.session import Operation, Session

_MAX_INDENT = 16
_MAX_PRECISION = 30
_ESCAPES = {"&": "&amp;", ">": "&gt;", "<": "&lt;", "'": "&#39;", '"': "&#34;"}

Filter = Callable[..., Any]


# Text


def _on_text(method: Filter) -> Filter:
    """A method of texts as a filter: it takes any value and prints it first."""

    def text_filter(session: Session, value: Any, *args: Any, **kwargs: Any) -> Any:
        return method(session, session.text(value), *args, **kwargs)

    return text_filter


def _replace(session: Session, value: Any, old: Any, new: Any, count: int | None = None) -> str:
    text, wanted, instead = (session.text(item) for item in (value, old, new))
    return methods.replace(session, text, wanted, instead, -1 if count is None else count)


def _join(session: Session, value: Any, d: Any = "", attribute: Any = None) -> str:
    items = _list(session, value)
    if attribute is not None:
        items = _attributes(session, items, attribute)
    return methods.join(session, session.text(d), [session.text(item) for item in items])


def _indent(
    session: Session, value: Any, width: int | str = 4, first: bool = False, blank: bool = False
) -> str:
    text = session.text(value)
    margin = width if isinstance(width, str) else binary(session, "*", " ", width)
    # As Jinja: one line break is added and taken away again by the last line.
    lines = methods.splitlines(session, text + "\n")
    session.meter.foresee(len(text) + len(lines) * (len(margin) + 1))
    rest = "\n".join(margin + line if line or blank else line for line in lines[1:])
    indented = lines[0] + ("\n" + rest if len(lines) > 1 else "")
    return session.meter.keep(margin + indented if first else indented)


def _title(session: Session, value: Any) -> str:
    text = session.text(value)
    session.meter.foresee_items(len(text))
    return session.meter.keep(session.disguise.change(text, do_title))


def _escape(session: Session, value: Any) -> str:
    text = session.text(value)
    session.meter.foresee(5 * len(text))
    return session.meter.keep(session.disguise.escaped(text, _ESCAPES))


def _tojson(
    session: Session,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    *,
    sort_keys: bool = False,
) -> str:
    margin = len(indent) if isinstance(indent, str) else indent or 0
    if margin > _MAX_INDENT or len("".join(separators or ())) > _MAX_INDENT:
        raise LimitError(f"JSON is indented by {_MAX_INDENT} characters at most")
    session.meter.foresee(6 * session.meter.weigh(value))
    encoder = json.JSONEncoder(
        ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys
    )
    if indent is None:
        text = encoder.encode(value)
    else:
        # Deep nesting turns into long margins: stop as soon as there are too many.
        text = session.meter.gather(encoder.iterencode(value))
    return session.meter.keep(session.disguise.ascii(text) if ensure_ascii else text)


# Numbers


def _int(session: Session, value: Any, default: int = 0, base: int = 10) -> Any:
    value = session.lift(value)
    try:
        return int(value, base) if isinstance(value, str) else int(value)
    except (TypeError, ValueError):
        # As Jinja: a text such as "42.9" is cut to 42.
        try:
            return int(float(value))
        except (TypeError, ValueError):
            return default


def _float(session: Session, value: Any, default: float = 0.0) -> float:
    try:
        return float(session.lift(value))
    except (TypeError, ValueError):
        return default


def _round(session: Session, value: Any, precision: int = 0, method: str = "common") -> Any:
    session.meter.spend(1)
    if abs(precision) > _MAX_PRECISION:
        raise LimitError(f"it rounded to more than {_MAX_PRECISION} digits")
    if method == "common":
        return round(value, precision)
    scale = 10**precision
    return (math.ceil if method == "ceil" else math.floor)(value * scale) / scale


def _sum(session: Session, value: Any, attribute: Any = None, start: Any = 0) -> Any:
    items = _list(session, value)
    if attribute is not None:
        items = _attributes(session, items, attribute)
    for item in items:
        start = binary(session, "+", start, item)
    return start


# Sequences


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
    "capitalize": _on_text(methods.METHODS[str]["capitalize"]),
    "count": _length,
    "d": _default,
    "default": _default,
    "dictsort": _dictsort,
    "e": _escape,
    "escape": _escape,
    "first": _first,
    "float": _float,
    "format": lambda session, value, *args: percent(session, session.text(value), args),
    "indent": _indent,
    "int": _int,
    "items": _items,
    "join": _join,
    "last": _last,
    "length": _length,
    "list": _list,
    "lower": _on_text(methods.METHODS[str]["lower"]),
    "map": _map,
    "max": _extreme(max),
    "min": _extreme(min),
    "reject": _selector(keep=False, by_attribute=False),
    "rejectattr": _selector(keep=False, by_attribute=True),
    "replace": _replace,
    "reverse": _reverse,
    "round": _round,
    "safe": Session.text,
    "select": _selector(keep=True, by_attribute=False),
    "selectattr": _selector(keep=True, by_attribute=True),
    "sort": _sort,
    "string": Session.text,
    "sum": _sum,
    "title": _title,
    "tojson": _tojson,
    "trim": _on_text(methods.strip),
    "unique": _unique,
    "upper": _on_text(methods.METHODS[str]["upper"]),
    "wordcount": _on_text(methods.asked(lambda text: len(re.findall(r"\w+", text)))),
}


# Tests


def _simple(test: Callable[..., Any]) -> Filter:
    """A test of Jinja that looks at a value's kind only."""
    return lambda _, value, *args: test(value, *args)


def _comparison(name: str) -> Filter:
    return lambda session, value, other: compare_two(session, name, value, other)


def _divisible(session: Session, value: Any, number: Any) -> bool:
    if not is_number(value):
        raise TypeError("only numbers can be divided")  # for texts, "%" formats
    return bool(binary(session, "%", value, number) == 0)


_COMPARISON_NAMES = {
    "eq": ("eq", "equalto", "=="),
    "ne": ("ne", "!="),
    "lt": ("lt", "lessthan", "<"),
    "lteq": ("le", "<="),
    "gt": ("gt", "greaterthan", ">"),
    "gteq": ("ge", ">="),
    "in": ("in",),
}
_KINDS = (
    *("boolean", "defined", "false", "float", "integer", "iterable", "mapping", "none"),
    *("number", "sameas", "sequence", "string", "true", "undefined"),
)

TESTS: Mapping[str, Filter] = {
    **{name: _simple(cast("Filter", JINJA_TESTS[name])) for name in _KINDS},
    **{
        name: _comparison(comparison)
        for comparison, names in _COMPARISON_NAMES.items()
        for name in names
    },
    "callable": lambda _, value: isinstance(value, Operation | Macro),
    "divisibleby": _divisible,
    "even": lambda session, value: _divisible(session, value, 2),
    "lower": _on_text(methods.METHODS[str]["islower"]),
    "odd": lambda session, value: not _divisible(session, value, 2),
    "upper": _on_text(methods.METHODS[str]["isupper"]),
}
