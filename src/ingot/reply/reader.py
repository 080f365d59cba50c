"""Reading a text that comes in pieces, always one character ahead.

Readings are generators: they yield where they need the next piece of text, and return what they
read. Every decision is made by looking at one character that is not taken yet, or by going back
(`attempt`), so where the borders of pieces lie changes nothing. What does not fit raises
`Mismatch`; what was taken until then is still held, so that nothing of a text gets lost.
"""

import re
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

T = TypeVar("T")
Reading = Generator[None, str, T]


class Mismatch(Exception):  # noqa: N818 (no error: the text is something else)
    """The next character is not one that may come."""


class Reader:
    """A place in a text, and the characters before it that nobody has shown yet."""

    def __init__(self) -> None:
        self._piece = ""
        self._at = 0
        self._ended = False
        self._held: list[str] = []
        self.sink: Callable[[str], None] | None = None  # takes what would be held, if set

    def peek(self) -> Reading[str]:
        """The next character; nothing at the end of the text."""
        while self._at == len(self._piece) and not self._ended:
            self._piece = yield
            self._at = 0
            self._ended = not self._piece
        return self._piece[self._at : self._at + 1]

    def advance(self) -> None:
        """Take the character that was seen."""
        (self.sink or self._held.append)(self._piece[self._at])
        self._at += 1

    def advance_over(self, run: re.Pattern[str]) -> None:
        """Take what a pattern matches of the text that is here; it may be nothing."""
        if found := run.match(self._piece, self._at):
            self._held.append(found[0])
            self._at = found.end()

    @property
    def is_over(self) -> bool:
        """Whether the end of the text was seen, and nothing is left before it."""
        return self._ended and self._at == len(self._piece)

    def go_back(self, text: str) -> None:
        """Go to the place before a text that was just taken."""
        if len(text) > self._at:  # it began in an earlier piece
            self._piece = text + self._piece[self._at :]
            self._at = len(text)
        self._at -= len(text)

    def hold(self, text: str) -> None:
        """Hold a text that was read already."""
        self._held.append(text)

    def release(self) -> str:
        """What is held; it is not held any more."""
        text = "".join(self._held)
        self._held.clear()
        return text


def literal(reader: Reader, text: str) -> Reading[None]:
    """Read exactly this text."""
    for char in text:
        if (yield from reader.peek()) != char:
            raise Mismatch
        reader.advance()


def one_of(reader: Reader, texts: Iterable[str]) -> Reading[str]:
    """Read one of several texts, none of which begins with another."""
    left = tuple(texts)
    read = ""
    while read not in left:
        char = yield from reader.peek()
        left = tuple(text for text in left if char and text.startswith(read + char))
        if not left:
            raise Mismatch
        reader.advance()
        read += char
    return read


def attempt(reader: Reader, reading: Reading[T]) -> Reading[T | None]:
    """Read what may be there; None if it is not, and nothing of it is taken."""
    before = reader.release()
    try:
        return (yield from reading)
    except Mismatch:
        reader.go_back(reader.release())
        return None
    finally:
        reader.hold(before + reader.release())


def up_to(reader: Reader, ends: str, most: int = 200) -> Reading[str]:
    """Read the text before any of these characters: not empty, and not longer than a name."""
    read = ""
    while (char := (yield from reader.peek())) not in ends:
        if len(read) == most:
            raise Mismatch
        reader.advance()
        read += char
    if not char or not read:
        raise Mismatch
    return read


def spaces(reader: Reader) -> Reading[None]:
    """Read white space, as much as there is."""
    while (yield from reader.peek()).isspace():
        reader.advance()
