"""Methods of texts, lists and dicts that templates may call.

Methods that are not in these tables cannot be reached. Each takes the render state, then the value
it belongs to. Methods that search or split use the original characters of a text and return pieces
of the text with placeholders.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from jinja2.runtime import LoopContext
from jinja2.sandbox import SandboxedFormatter
from jinja2.utils import Cycler

from ingot.tokenizer.sandbox.operators import check_width
from ingot.tokenizer.sandbox.render_state import RenderState

# The line ends of `splitlines`.
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"

Method = Callable[..., Any]


def strip(state: RenderState, text: str, characters: str | None = None) -> str:
    """`text.strip(characters)`."""
    return rstrip(state, lstrip(state, text, characters), characters)


def lstrip(state: RenderState, text: str, characters: str | None = None) -> str:
    """`text.lstrip(characters)`."""
    state.meter.touch(len(text))
    if characters is None:
        return state.meter.keep(text.lstrip())
    kept = state.original(text).lstrip(state.original(characters))
    return state.meter.keep(text[len(text) - len(kept) :])


def rstrip(state: RenderState, text: str, characters: str | None = None) -> str:
    """`text.rstrip(characters)`."""
    state.meter.touch(len(text))
    if characters is None:
        return state.meter.keep(text.rstrip())
    kept = state.original(text).rstrip(state.original(characters))
    return state.meter.keep(text[: len(kept)])


def _cut(text: str, pieces: list[str], separator: int) -> list[str]:
    """The parts of `text` that have the lengths of `pieces`, with separators between."""
    parts, start = [], 0
    for piece in pieces:
        parts.append(text[start : start + len(piece)])
        start += len(piece) + separator
    return parts


def _splitter(method: Callable[..., list[str]]) -> Method:
    def split(
        state: RenderState, text: str, sep: str | None = None, maxsplit: int = -1
    ) -> list[str]:
        original = state.original(text)
        wanted = state.original(sep)
        state.meter.search(original, wanted or " ")
        most = original.count(wanted) if wanted else len(original) // 2
        state.meter.foresee_items(min(most, maxsplit) if maxsplit >= 0 else most)
        pieces = method(original, wanted, maxsplit)
        if original is not text:
            pieces = _cut(text, pieces, len(wanted)) if wanted else method(text, None, maxsplit)
        return state.meter.keep_all(pieces)

    return split


def _partitioner(method: Callable[[str, str], tuple[str, str, str]]) -> Method:
    def partition(state: RenderState, text: str, sep: str) -> tuple[str, ...]:
        original = state.original(text)
        state.meter.search(original, sep)
        pieces = list(method(original, state.original(sep)))
        return tuple(state.meter.keep_all(_cut(text, pieces, 0)))

    return partition


def splitlines(state: RenderState, text: str, keepends: bool = False) -> list[str]:
    """`text.splitlines(keepends)`."""
    state.meter.foresee_items(sum(text.count(end) for end in _LINE_ENDS))
    state.meter.touch(len(text))
    return state.meter.keep_all(text.splitlines(keepends))


def replace(state: RenderState, text: str, old: str, new: str, count: int = -1) -> str:
    """`text.replace(old, new, count)`."""
    original, wanted = state.original(text), state.original(old)
    state.meter.touch(len(original))
    found = original.count(wanted)
    if count >= 0:
        found = min(found, count)
    state.meter.foresee(len(text) + found * max(len(new) - len(old), 0))
    if original is text or not wanted:
        return state.meter.keep(text.replace(wanted, new, count))
    state.meter.foresee_items(found)
    return state.meter.keep(new.join(_cut(text, original.split(wanted, count), len(wanted))))


def join(state: RenderState, separator: str, texts: Any) -> str:
    """`separator.join(texts)`."""
    if isinstance(texts, str):
        state.meter.foresee_items(len(texts), made=True)
    parts = list(state.measured(texts))
    # Values that are not texts make the join fail.
    size = sum(len(part) for part in parts if type(part) is str)
    state.meter.foresee(size + len(separator) * len(parts))
    return state.meter.keep(separator.join(parts))


def removeprefix(state: RenderState, text: str, prefix: str) -> str:
    """`text.removeprefix(prefix)`."""
    state.meter.touch(len(text))
    if not state.original(text).startswith(state.original(prefix)):
        return text
    return state.meter.keep(text[len(prefix) :])


def removesuffix(state: RenderState, text: str, suffix: str) -> str:
    """`text.removesuffix(suffix)`."""
    state.meter.touch(len(text))
    if not state.original(text).endswith(state.original(suffix)):
        return text
    return state.meter.keep(text[: len(text) - len(suffix)])


def cased(method: Callable[[str], str]) -> Method:
    """A change of case, as a method."""

    def change(state: RenderState, text: str) -> str:
        state.meter.touch(len(text))
        return state.meter.keep(method(state.placeholders.original_letters(text)))

    return change


def asked(method: Callable[..., Any]) -> Method:
    """A method whose result contains no text; it sees the original characters."""

    def ask(state: RenderState, value: Any, *args: Any) -> Any:
        value, args = state.measured(value), state.measured(args)
        if type(value) is str:
            for wanted in args:
                state.meter.search(value, wanted if type(wanted) is str else " ")
        return method(state.original_all(value), *state.original_all(args))

    return ask


class _Formatter(SandboxedFormatter):
    """`str.format` with bounded widths, and only the attributes that templates may access."""

    def __init__(self, state: RenderState) -> None:
        super().__init__(state.environment)
        self._session = state

    def format_field(self, value: Any, format_spec: str) -> Any:
        self._session.meter.spend(1)
        for number in re.findall(r"\d+", format_spec):
            check_width(number)
        if not format_spec or type(value) not in (str, int, float, bool):
            value = self._session.text(value)
        return self._session.meter.keep(format(value, format_spec))

    def convert_field(self, value: Any, conversion: Any) -> Any:
        self._session.meter.weigh(value, data_only=True)
        return self._session.meter.keep(super().convert_field(value, conversion))


def format_text(state: RenderState, text: str, *args: Any, **kwargs: Any) -> str:
    """`text.format(...)`."""
    state.meter.touch(len(text))
    return state.meter.keep(_Formatter(state).vformat(text, args, kwargs))


def items(state: RenderState, value: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """`value.items()`, as a list."""
    state.meter.foresee_items(4 * len(value))
    return list(value.items())


def _copied(method: Callable[[Any], Any]) -> Method:
    def copy(state: RenderState, value: Any) -> Any:
        state.meter.foresee_items(len(value))
        return state.meter.keep(method(value))

    return copy


def _get(state: RenderState, value: dict[Any, Any], name: Any, default: Any = None) -> Any:
    name = state.measured(name)
    return value.get(name if name in value else state.original(name), default)


_TEXT: dict[str, Method] = {
    "strip": strip,
    "lstrip": lstrip,
    "rstrip": rstrip,
    "split": _splitter(str.split),
    "rsplit": _splitter(str.rsplit),
    "splitlines": splitlines,
    "partition": _partitioner(str.partition),
    "rpartition": _partitioner(str.rpartition),
    "replace": replace,
    "join": join,
    "format": format_text,
    "removeprefix": removeprefix,
    "removesuffix": removesuffix,
    **{
        name: cased(getattr(str, name))
        for name in ("upper", "lower", "title", "capitalize", "swapcase", "casefold")
    },
    **{
        name: asked(getattr(str, name))
        for name in (
            *("startswith", "endswith", "find", "rfind", "index", "rindex", "count"),
            *("isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier"),
            *("islower", "isnumeric", "isspace", "istitle", "isupper"),
        )
    },
}

METHODS: Mapping[type, Mapping[str, Method]] = {
    str: _TEXT,
    dict: {
        "items": items,
        "keys": _copied(list),
        "values": _copied(lambda value: list(value.values())),
        "get": _get,
        "copy": _copied(dict),
    },
    list: {"index": asked(list.index), "count": asked(list.count), "copy": _copied(list)},
    tuple: {"index": asked(tuple.index), "count": asked(tuple.count)},
    LoopContext: {
        "cycle": lambda _, loop, *args: loop.cycle(*args),
        "changed": lambda state, loop, *args: loop.changed(*state.measured(args)),
    },
    Cycler: {
        "next": lambda _, cycler: cycler.next(),
        "reset": lambda _, cycler: cycler.reset(),
    },
}

VALUES: Mapping[type, frozenset[str]] = {
    LoopContext: frozenset(
        {
            *("index", "index0", "revindex", "revindex0", "first", "last", "length"),
            *("depth", "depth0", "previtem", "nextitem"),
        }
    ),
    Cycler: frozenset({"current"}),
}
