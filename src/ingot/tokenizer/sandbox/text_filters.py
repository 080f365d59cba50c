"""Filters of texts and numbers: Jinja's, and the `tojson` that chat templates know.

Each takes the session first. A filter of texts takes any value and prints it before.
"""

import json
import math
import re
from collections.abc import Callable
from typing import Any

from jinja2.exceptions import TemplateRuntimeError

from ingot.tokenizer.sandbox import methods
from ingot.tokenizer.sandbox.limits import LimitError, is_number
from ingot.tokenizer.sandbox.operators import binary
from ingot.tokenizer.sandbox.session import Session

_MAX_INDENT = 16
_MAX_PRECISION = 30
_ESCAPES = {"&": "&amp;", ">": "&gt;", "<": "&lt;", "'": "&#39;", '"': "&#34;"}

Filter = Callable[..., Any]


def on_text(method: Filter) -> Filter:
    """A method of texts as a filter: it takes any value and prints it first."""

    def text_filter(session: Session, value: Any, *args: Any, **kwargs: Any) -> Any:
        return method(session, session.text(value), *args, **kwargs)

    return text_filter


def replace(session: Session, value: Any, old: Any, new: Any, count: int | None = None) -> str:
    """`value|replace(old, new)`."""
    text, wanted, instead = (session.text(item) for item in (value, old, new))
    return methods.replace(session, text, wanted, instead, -1 if count is None else count)


def indent(
    session: Session, value: Any, width: int | str = 4, first: bool = False, blank: bool = False
) -> str:
    """`value|indent`."""
    text = session.text(value)
    margin = width if isinstance(width, str) else binary(session, "*", " ", width)
    # As Jinja: one line break is added and taken away again by the last line.
    lines = methods.splitlines(session, text + "\n")
    session.meter.foresee(len(text) + len(lines) * (len(margin) + 1))
    rest = "\n".join(margin + line if line or blank else line for line in lines[1:])
    indented = lines[0] + ("\n" + rest if len(lines) > 1 else "")
    return session.meter.keep(margin + indented if first else indented)


def title(session: Session, value: Any) -> str:
    """`value|title`."""
    text = session.text(value)
    session.meter.foresee_items(len(text), made=True)
    # As Jinja: a word begins after a space, a dash or an opening bracket.
    between = re.escape(session.disguise.with_stand_ins("-({[<"))
    words = re.split(rf"([{between}\s]+)", session.disguise.letters(text))
    title = "".join(word[0].upper() + word[1:].lower() for word in words if word)
    return session.meter.keep(title)


def escape(session: Session, value: Any) -> str:
    """`value|escape`: for HTML."""
    text = session.text(value)
    session.meter.foresee(5 * len(text))
    return session.meter.keep(session.disguise.escaped(text, _ESCAPES))


def tojson(
    session: Session,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    *,
    sort_keys: bool = False,
) -> str:
    """`value|tojson`, as `transformers` has it: JSON that is not escaped for HTML."""
    margin = len(indent) if isinstance(indent, str) else indent or 0
    between, after_key = separators or ("", "")
    if max(margin, len(between), len(after_key)) > _MAX_INDENT:
        raise LimitError(f"JSON is indented by {_MAX_INDENT} characters at most")
    session.meter.foresee(6 * session.meter.weigh(value))
    if sort_keys:
        value = _in_order(session, value)
    encoder = json.JSONEncoder(ensure_ascii=False, indent=indent, separators=separators)
    if indent is None:
        text = encoder.encode(value)
    else:
        # Deep nesting turns into long margins: stop as soon as there are too many.
        text = session.meter.gather(encoder.iterencode(value))
    return session.meter.keep(session.disguise.ascii(text) if ensure_ascii else text)


def _in_order(session: Session, value: Any) -> Any:
    """A value that has been measured, with the keys of its dicts sorted."""
    if isinstance(value, dict):
        return {key: _in_order(session, value[key]) for key in sorted(value, key=session.lift)}
    if isinstance(value, list | tuple):
        return [_in_order(session, item) for item in value]
    return value


def to_int(session: Session, value: Any, default: int = 0, base: int = 10) -> Any:
    """`value|int`."""
    value = session.lift(value)
    try:
        return int(value, base) if isinstance(value, str) else int(value)
    except (TypeError, ValueError):
        # As Jinja: a text such as "42.9" is cut to 42.
        try:
            return int(float(value))
        except (TypeError, ValueError):
            return default


def to_float(session: Session, value: Any, default: float = 0.0) -> float:
    """`value|float`."""
    try:
        return float(session.lift(value))
    except (TypeError, ValueError):
        return default


def rounded(session: Session, value: Any, precision: int = 0, method: str = "common") -> Any:
    """`value|round`."""
    session.meter.spend(1)
    if not is_number(value):
        raise TypeError("only numbers can be rounded")  # texts times a number grow
    if abs(precision) > _MAX_PRECISION:
        raise LimitError(f"it rounded to more than {_MAX_PRECISION} digits")
    if method not in ("common", "ceil", "floor"):
        raise TemplateRuntimeError("round knows the methods common, ceil and floor")
    if method == "common":
        return round(value, precision)
    scale = 10**precision
    return (math.ceil if method == "ceil" else math.floor)(value * scale) / scale
