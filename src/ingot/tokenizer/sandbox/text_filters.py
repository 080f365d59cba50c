"""Filters of texts and numbers: Jinja's, and `tojson` as in `transformers`.

Each takes the render state first. A filter of texts converts any value to text first.
"""

import json
import math
import re
from collections.abc import Callable
from typing import Any

from jinja2.exceptions import TemplateRuntimeError

from ingot.tokenizer.sandbox import value_methods
from ingot.tokenizer.sandbox.limits import LimitError, is_number
from ingot.tokenizer.sandbox.operators import binary
from ingot.tokenizer.sandbox.render_state import RenderState

_MAX_INDENT = 16
_MAX_PRECISION = 30
_ESCAPES = {"&": "&amp;", ">": "&gt;", "<": "&lt;", "'": "&#39;", '"': "&#34;"}

Filter = Callable[..., Any]


def on_text(method: Filter) -> Filter:
    """A text method as a filter, which converts any value to text first."""

    def text_filter(state: RenderState, value: Any, *args: Any, **kwargs: Any) -> Any:
        return method(state, state.text(value), *args, **kwargs)

    return text_filter


def replace(state: RenderState, value: Any, old: Any, new: Any, count: int | None = None) -> str:
    """`value|replace(old, new)`."""
    text, wanted, instead = (state.text(item) for item in (value, old, new))
    return value_methods.replace(state, text, wanted, instead, -1 if count is None else count)


def indent(
    state: RenderState, value: Any, width: int | str = 4, first: bool = False, blank: bool = False
) -> str:
    """`value|indent`."""
    text = state.text(value)
    margin = width if isinstance(width, str) else binary(state, "*", " ", width)
    # As in Jinja: the line break that is added is removed with the last line.
    lines = value_methods.splitlines(state, text + "\n")
    state.meter.foresee(len(text) + len(lines) * (len(margin) + 1))
    rest = "\n".join(margin + line if line or blank else line for line in lines[1:])
    indented = lines[0] + ("\n" + rest if len(lines) > 1 else "")
    return state.meter.keep(margin + indented if first else indented)


def title(state: RenderState, value: Any) -> str:
    """`value|title`."""
    text = state.text(value)
    state.meter.foresee_items(len(text), made=True)
    # As in Jinja: a word begins after a space, a dash or an opening bracket.
    between = re.escape(state.placeholders.with_placeholders("-({[<"))
    words = re.split(rf"([{between}\s]+)", state.placeholders.original_letters(text))
    title = "".join(word[0].upper() + word[1:].lower() for word in words if word)
    return state.meter.keep(title)


def escape(state: RenderState, value: Any) -> str:
    """`value|escape`: for HTML."""
    text = state.text(value)
    state.meter.foresee(5 * len(text))
    return state.meter.keep(state.placeholders.escaped(text, _ESCAPES))


def tojson(
    state: RenderState,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    *,
    sort_keys: bool = False,
) -> str:
    """`value|tojson` as in `transformers`: not escaped for HTML."""
    margin = len(indent) if isinstance(indent, str) else indent or 0
    between, after_key = separators or ("", "")
    if max(margin, len(between), len(after_key)) > _MAX_INDENT:
        raise LimitError(f"JSON may be indented by at most {_MAX_INDENT} characters")
    state.meter.foresee(6 * state.meter.weigh(value))
    if sort_keys:
        value = _in_order(state, value)
    encoder = json.JSONEncoder(ensure_ascii=False, indent=indent, separators=separators)
    if indent is None:
        text = encoder.encode(value)
    else:
        # Deep nesting makes long margins: stop as soon as the text gets too long.
        text = state.meter.gather(encoder.iterencode(value))
    return state.meter.keep(state.placeholders.ascii(text) if ensure_ascii else text)


def _in_order(state: RenderState, value: Any) -> Any:
    """A measured value, with the keys of its dicts sorted."""
    if isinstance(value, dict):
        return {key: _in_order(state, value[key]) for key in sorted(value, key=state.original)}
    if isinstance(value, list | tuple):
        return [_in_order(state, item) for item in value]
    return value


def to_int(state: RenderState, value: Any, default: int = 0, base: int = 10) -> Any:
    """`value|int`."""
    value = state.original(value)
    try:
        return int(value, base) if isinstance(value, str) else int(value)
    except (TypeError, ValueError):
        # As in Jinja: a text such as "42.9" is cut to 42.
        try:
            return int(float(value))
        except (TypeError, ValueError):
            return default


def to_float(state: RenderState, value: Any, default: float = 0.0) -> float:
    """`value|float`."""
    try:
        return float(state.original(value))
    except (TypeError, ValueError):
        return default


def rounded(state: RenderState, value: Any, precision: int = 0, method: str = "common") -> Any:
    """`value|round`."""
    state.meter.spend(1)
    if not is_number(value):
        raise TypeError("only numbers can be rounded")  # multiplying a text would repeat it
    if abs(precision) > _MAX_PRECISION:
        raise LimitError(f"it rounded to more than {_MAX_PRECISION} digits")
    if method not in ("common", "ceil", "floor"):
        raise TemplateRuntimeError("the methods of round are common, ceil and floor")
    if method == "common":
        return round(value, precision)
    scale = 10**precision
    return (math.ceil if method == "ceil" else math.floor)(value * scale) / scale
