"""Reading a text that comes in pieces, with a lookahead of one character.

Readings are generators: they yield when they need the next piece of text, and return what they
read. Every decision looks at one character that is not taken yet, or goes back (`attempt`), so the
boundaries of the pieces do not matter. Unexpected text raises `Mismatch`. The reader still holds
what was taken until then, so no text is lost.
"""

import re
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

T = TypeVar("T")
Reading = Generator[None, str, T]


class Mismatch(Exception):  # noqa: N818 (not an error: the text is something else)
    """The next character does not fit what is being read."""


class Reader:
    """A position in a text, and the characters before it that are held back."""

    def __init__(self) -> None:
        self._piece = ""
        self._at = 0
        self._ended = False
        self._held: list[str] = []
        self.is_cut = False  # whether a limit ended the text, not the model
        self.sink: Callable[[str], None] | None = None  # gets what would be held

    def peek(self) -> Reading[str]:
        """The next character; empty at the end of the text."""
        while self._at == len(self._piece) and not self._ended:
            self._piece = yield
            self._at = 0
            self._ended = not self._piece
        return self._piece[self._at : self._at + 1]

    def advance(self) -> None:
        """Take the next character, which `peek` has seen."""
        (self.sink or self._held.append)(self._piece[self._at])
        self._at += 1

    def advance_over(self, run: re.Pattern[str]) -> None:
        """Take what a pattern matches in the current piece; maybe nothing."""
        if found := run.match(self._piece, self._at):
            self._held.append(found[0])
            self._at = found.end()

    @property
    def is_over(self) -> bool:
        """Whether all of the text was taken and it has ended."""
        return self._ended and self._at == len(self._piece)

    def go_back(self, text: str) -> None:
        """Go back to before a text that was just taken."""
        if len(text) > self._at:  # it began in an earlier piece
            self._piece = text + self._piece[self._at :]
            self._at = len(text)
        self._at -= len(text)

    def hold(self, text: str) -> None:
        """Hold a text that was read before."""
        self._held.append(text)

    def release(self) -> str:
        """Return the text that is held, and hold it no longer."""
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
    """Read one of several texts, none of which is a prefix of another."""
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
    """Read something optional; None if it is not there, and nothing is taken.

    A text that ends in the middle of it raises `Mismatch`.
    """
    before = reader.release()
    try:
        return (yield from reading)
    except Mismatch:
        if reader.is_over:
            raise
        reader.go_back(reader.release())
        return None
    finally:
        reader.hold(before + reader.release())


def up_to(reader: Reader, ends: str, most: int = 200) -> Reading[str]:
    """Read the text before any of these characters: 1 to `most` characters."""
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
    """Read white space."""
    while (yield from reader.peek()).isspace():
        reader.advance()
