"""Methods of texts, lists and dicts that templates may call.

The tables here are all there is: whatever they do not name cannot be reached. Each
entry takes the session, then the value the method belongs to. Methods that search or cut
do so in the text as it was said and give back pieces of the disguised one.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from jinja2.runtime import LoopContext
from jinja2.sandbox import SandboxedFormatter
from jinja2.utils import Cycler

from ingot.tokenizer.sandbox.operators import check_width
from ingot.tokenizer.sandbox.session import Session

# What `splitlines` splits at.
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"

Method = Callable[..., Any]


def strip(session: Session, text: str, characters: str | None = None) -> str:
    """`text.strip(characters)`."""
    return rstrip(session, lstrip(session, text, characters), characters)


def lstrip(session: Session, text: str, characters: str | None = None) -> str:
    """`text.lstrip(characters)`."""
    session.meter.touch(len(text))
    if characters is None:
        return session.meter.keep(text.lstrip())
    kept = session.lift(text).lstrip(session.lift(characters))
    return session.meter.keep(text[len(text) - len(kept) :])


def rstrip(session: Session, text: str, characters: str | None = None) -> str:
    """`text.rstrip(characters)`."""
    session.meter.touch(len(text))
    if characters is None:
        return session.meter.keep(text.rstrip())
    kept = session.lift(text).rstrip(session.lift(characters))
    return session.meter.keep(text[: len(kept)])


def _cut(text: str, pieces: list[str], separator: int) -> list[str]:
    """The parts of `text` that have the lengths of `pieces`, with separators between."""
    parts, start = [], 0
    for piece in pieces:
        parts.append(text[start : start + len(piece)])
        start += len(piece) + separator
    return parts


def _splitter(method: Callable[..., list[str]]) -> Method:
    def split(session: Session, text: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
        said = session.lift(text)
        wanted = session.lift(sep)
        session.meter.search(said, wanted or " ")
        most = said.count(wanted) if wanted else len(said) // 2
        session.meter.foresee_items(min(most, maxsplit) if maxsplit >= 0 else most)
        pieces = method(said, wanted, maxsplit)
        if said is not text:
            pieces = _cut(text, pieces, len(wanted)) if wanted else method(text, None, maxsplit)
        return session.meter.keep_all(pieces)

    return split


def _partitioner(method: Callable[[str, str], tuple[str, str, str]]) -> Method:
    def partition(session: Session, text: str, sep: str) -> tuple[str, ...]:
        said = session.lift(text)
        session.meter.search(said, sep)
        pieces = list(method(said, session.lift(sep)))
        return tuple(session.meter.keep_all(_cut(text, pieces, 0)))

    return partition


def splitlines(session: Session, text: str, keepends: bool = False) -> list[str]:
    """`text.splitlines(keepends)`."""
    session.meter.foresee_items(sum(text.count(end) for end in _LINE_ENDS))
    session.meter.touch(len(text))
    return session.meter.keep_all(text.splitlines(keepends))


def replace(session: Session, text: str, old: str, new: str, count: int = -1) -> str:
    """`text.replace(old, new, count)`."""
    said, wanted = session.lift(text), session.lift(old)
    session.meter.touch(len(said))
    found = said.count(wanted)
    if count >= 0:
        found = min(found, count)
    session.meter.foresee(len(text) + found * max(len(new) - len(old), 0))
    if said is text or not wanted:
        return session.meter.keep(text.replace(wanted, new, count))
    session.meter.foresee_items(found)
    return session.meter.keep(new.join(_cut(text, said.split(wanted, count), len(wanted))))


def join(session: Session, separator: str, texts: Any) -> str:
    """`separator.join(texts)`."""
    if isinstance(texts, str):
        session.meter.foresee_items(len(texts), made=True)
    parts = list(session.measured(texts))
    # Whatever is not a text makes the join fail.
    size = sum(len(part) for part in parts if type(part) is str)
    session.meter.foresee(size + len(separator) * len(parts))
    return session.meter.keep(separator.join(parts))


def removeprefix(session: Session, text: str, prefix: str) -> str:
    """`text.removeprefix(prefix)`."""
    session.meter.touch(len(text))
    if not session.lift(text).startswith(session.lift(prefix)):
        return text
    return session.meter.keep(text[len(prefix) :])


def removesuffix(session: Session, text: str, suffix: str) -> str:
    """`text.removesuffix(suffix)`."""
    session.meter.touch(len(text))
    if not session.lift(text).endswith(session.lift(suffix)):
        return text
    return session.meter.keep(text[: len(text) - len(suffix)])


def cased(method: Callable[[str], str]) -> Method:
    """A change of letters, as a method."""

    def change(session: Session, text: str) -> str:
        session.meter.touch(len(text))
        return session.meter.keep(method(session.disguise.letters(text)))

    return change


def asked(method: Callable[..., Any]) -> Method:
    """A question about the text as it was said: the answer holds no text."""

    def ask(session: Session, value: Any, *args: Any) -> Any:
        value, args = session.measured(value), session.measured(args)
        if type(value) is str:
            for wanted in args:
                session.meter.search(value, wanted if type(wanted) is str else " ")
        return method(session.lift_all(value), *session.lift_all(args))

    return ask


class _Formatter(SandboxedFormatter):
    """`str.format` with widths that a text can have, over what templates can see."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.environment)
        self._session = session

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


def format_text(session: Session, text: str, *args: Any, **kwargs: Any) -> str:
    """`text.format(...)`."""
    session.meter.touch(len(text))
    return session.meter.keep(_Formatter(session).vformat(text, args, kwargs))


def items(session: Session, value: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """`value.items()`, as a list."""
    session.meter.foresee_items(4 * len(value))
    return list(value.items())


def _copied(method: Callable[[Any], Any]) -> Method:
    def copy(session: Session, value: Any) -> Any:
        session.meter.foresee_items(len(value))
        return session.meter.keep(method(value))

    return copy


def _get(session: Session, value: dict[Any, Any], name: Any, default: Any = None) -> Any:
    name = session.measured(name)
    return value.get(name if name in value else session.lift(name), default)


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
        "changed": lambda session, loop, *args: loop.changed(*session.measured(args)),
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
