"""Limits of a render: time, memory, output.

Every operation of a running template reports its cost to a `Meter`, which stops the render with
`LimitError` when a limit is exceeded. It needs no signal and no second thread, and its only clock
is the CPU time of the rendering thread. So limits hold in any thread, and a good template does not
fail on a busy machine. The meter does not know what the operations do.
"""

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from jinja2.exceptions import TemplateRuntimeError
from jinja2.runtime import Undefined

V = TypeVar("V")

# Steps between two looks at the clock: a few milliseconds of template code.
_SLICE = 20_000
# Characters that cost as much as one step of template code.
_CHARACTERS_PER_STEP = 16
# What a number or a reference weighs, in characters.
_NODE = 8
# Bytes of an item that is created with its list: a number, or a text of one character.
_MADE_ITEM = 88
# A tenth of a second if every character of a text is compared with every one of another.
_MAX_SEARCH = 1 << 27
# Deep enough for any JSON schema, shallow enough for C code that recurses without a guard.
_MAX_DEPTH = 64

_SCALARS = frozenset({int, float, bool, type(None)})
_DATA = _SCALARS | {str, list, tuple, dict, range, Undefined}
# The result of filters such as `map`, which can be iterated once.
Once: type[Any] = type(iter([]))


class LimitError(TemplateRuntimeError):
    """A template exceeded one of its limits."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one render; its input adds to them (`for_input`)."""

    seconds: float = 0.5  # CPU time
    characters: int = 2 << 20  # of the longest text, and of all output
    memory: int = 32 << 20  # bytes of all values created, although most are freed at once

    def for_input(self, characters: int) -> "Limits":
        """The limits of a render with this many characters in its messages."""
        return Limits(
            seconds=self.seconds + characters * 2e-7,
            characters=self.characters + 16 * characters,
            memory=self.memory + 64 * characters,
        )


class Meter:
    """Counts the cost of one render."""

    __slots__ = ("_end", "_held", "_limits", "_slice", "_written")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._end = time.thread_time() + limits.seconds
        self._slice = _SLICE
        self._held = 0
        self._written = 0

    def spend(self, steps: int) -> None:
        """Count steps of work; look at the clock from time to time."""
        self._slice -= steps
        if self._slice < 0:
            self._slice = _SLICE
            if time.thread_time() > self._end:
                raise LimitError(f"it ran for more than {self._limits.seconds:.1f} seconds")

    def touch(self, characters: int) -> None:
        """Count work over text."""
        self.spend(1 + characters // _CHARACTERS_PER_STEP)

    def search(self, text: str, wanted: str) -> None:
        """Count a search; backwards, its cost can be the product of the lengths."""
        steps = len(text) * max(len(wanted), 1)
        if steps > _MAX_SEARCH:
            self._too_much(f"a search for {len(wanted):,} characters in {len(text):,}")
        self.touch(steps)

    def foresee(self, characters: int) -> None:
        """Refuse a text of this length before it is created."""
        if characters > self._limits.characters:
            self._too_much(f"a text of {characters:,} characters")
        self.touch(characters)

    def foresee_items(self, count: int, *, made: bool = False) -> None:
        """Refuse a list of this length before it is created; `made`: its items are new, too."""
        if count * _NODE > self._limits.characters:
            self._too_much(f"a list of {count:,} items")
        self.hold(64 + count * (_MADE_ITEM if made else _NODE))
        self.spend(1 + count)

    def hold(self, size: int) -> None:
        """Count bytes of memory."""
        self._held += size
        if self._held > self._limits.memory:
            self._too_much(f"more than {self._limits.memory >> 20} MiB of memory")

    def keep(self, value: V) -> V:
        """Count the memory of a new text or list."""
        self.hold(sys.getsizeof(value))
        return value

    def keep_all(self, texts: list[str]) -> list[str]:
        """Count the memory of a new list of texts."""
        self.foresee_items(len(texts))
        self.hold(sum(map(sys.getsizeof, texts)))
        return texts

    def gather(self, pieces: Iterable[str]) -> str:
        """Join texts one by one; stop when they get too long."""
        kept: list[str] = []
        size = 0
        for piece in pieces:
            size += len(piece)
            self.spend(1)
            if size > self._limits.characters:
                self._too_much(f"a text of more than {size:,} characters")
            kept.append(piece)
        return "".join(kept)

    def write(self, text: str) -> str:
        """Count output: of the prompt, or of a macro or block that is captured."""
        self._written += len(text)
        if self._written > self._limits.characters:
            self._too_much(f"more than {self._limits.characters:,} characters of output")
        self.hold(_NODE)
        self.spend(1)
        return text

    def weigh(self, value: Any, *, data_only: bool = False) -> int:
        """Count the work of visiting a value; return its size in characters.

        A value that is referenced twice counts twice: a few nested lists can stand for more text
        than fits in memory. With `data_only`, it may contain only what JSON can express.
        """
        if type(value) is str:
            self.touch(len(value))
            return len(value)
        if type(value) in _SCALARS:
            self.spend(1)
            return _NODE
        total = 0
        level: list[Any] = [value]
        for _ in range(_MAX_DEPTH):
            inner: list[Any] = []
            for item in level:
                kind = type(item)
                total += len(item) if kind is str else _NODE
                if kind in (list, tuple):
                    inner += item
                elif kind is dict:
                    inner += item
                    inner += item.values()
                elif kind is range:
                    total += len(item) * _NODE
                elif data_only and kind not in _DATA:
                    raise LimitError(f"a {kind.__name__} cannot be written as text")
                if total + len(inner) * _NODE > self._limits.characters:
                    self._too_much("a value larger than any prompt")
            self.spend(len(level))
            if not inner:
                self.touch(total)
                return total
            level = inner
        return self._too_much(f"values more than {_MAX_DEPTH} deep")

    def _too_much(self, what: str) -> NoReturn:
        raise LimitError(f"it asked for {what}")


def settled(value: Any) -> Any:
    """A value that can be visited twice: the rest of a one-time sequence, as a list."""
    return list(value) if type(value) is Once else value


def is_number(value: object) -> bool:
    """Whether a value is an int or a float (or a bool, as in Python)."""
    return isinstance(value, int | float)
