"""Reads JSON (RFC 8259, strictly) in a text that comes in pieces.

The reader holds what was read; these functions find where a value ends, and raise `Mismatch` where
a text stops being JSON. Nesting needs no recursion, because a model may write brackets for ever.
"""

import json
from collections.abc import Collection
from contextlib import suppress

from ingot.reply.text_reader import Mismatch, Reader, Reading, literal

_DIGITS = frozenset("0123456789")
_HEX = frozenset("0123456789abcdefABCDEF")
_ESCAPED = frozenset('"\\/bfnrt')
_BLANKS = frozenset(" \t\n\r")
_WORDS = {"t": "true", "f": "false", "n": "null"}


def blanks(reader: Reader) -> Reading[None]:
    """Read the white space that JSON allows."""
    while (yield from reader.peek()) in _BLANKS:
        reader.advance()


def value(reader: Reader) -> Reading[None]:
    """Read one value; the next character is its first."""
    closers: list[str] = []
    while True:
        opened = yield from _leaf_or_bracket(reader)
        if opened is not None:
            closers.append(opened)
            continue
        while closers:  # a value inside another one has ended
            yield from blanks(reader)
            char = yield from reader.peek()
            if char == ",":
                reader.advance()
                yield from blanks(reader)
                if closers[-1] == "}":
                    yield from key(reader)
                break
            if char != closers[-1]:
                raise Mismatch
            reader.advance()
            closers.pop()
        else:
            return


def is_value(text: str) -> bool:
    """Whether a text is exactly one value."""
    reader = Reader()
    reading = value(reader)
    with suppress(Mismatch):
        try:
            next(reading)
            reading.send(text)
            reading.send("")
        except StopIteration:
            return reader.release() == text
    return False


def key(reader: Reader, allowed: Collection[str] | None = None) -> Reading[str]:
    """Read a key (one of the allowed ones), its colon and the blanks after it."""
    name = yield from string(reader, allowed)
    yield from blanks(reader)
    yield from literal(reader, ":")
    yield from blanks(reader)
    return name


def string(reader: Reader, allowed: Collection[str] | None = None) -> Reading[str]:
    """Read a string and return its value.

    `Mismatch` comes with the first character that begins none of the `allowed` strings; one with
    escapes is compared as a whole.
    """
    yield from literal(reader, '"')
    read = ['"']
    left = allowed
    while (char := (yield from reader.peek())) != '"':
        if char < " ":  # control characters, and the end of the text
            raise Mismatch
        if char == "\\":
            left = None
        elif left is not None:
            at = len(read) - 1
            left = [text for text in left if text[at : at + 1] == char]
            if not left:
                raise Mismatch
        reader.advance()
        read.append(char)
        if char == "\\":
            read.append((yield from _escape(reader)))
    made: str = json.loads("".join(read) + '"')
    if allowed is not None and made not in allowed:
        raise Mismatch
    reader.advance()
    return made


def _leaf_or_bracket(reader: Reader) -> Reading[str | None]:
    """Read a scalar or an empty container, or open a container and return its closing bracket."""
    char = yield from reader.peek()
    match char:
        case "{" | "[":
            closer = "}" if char == "{" else "]"
            reader.advance()
            yield from blanks(reader)
            if (yield from reader.peek()) != closer:
                if closer == "}":
                    yield from key(reader)
                return closer
            reader.advance()
        case '"':
            yield from string(reader)
        case "t" | "f" | "n":
            yield from literal(reader, _WORDS[char])
        case _:
            yield from _number(reader)
    return None


def _escape(reader: Reader) -> Reading[str]:
    """Read the rest of an escape sequence."""
    char = yield from reader.peek()
    if char == "u":
        reader.advance()
        digits = ""
        for _ in range(4):
            digit = yield from reader.peek()
            if digit not in _HEX:
                raise Mismatch
            reader.advance()
            digits += digit
        return "u" + digits
    if char not in _ESCAPED:
        raise Mismatch
    reader.advance()
    return char


def _number(reader: Reader) -> Reading[None]:
    if (yield from reader.peek()) == "-":
        reader.advance()
    if (yield from reader.peek()) == "0":
        reader.advance()
    else:
        yield from _digits(reader)
    if (yield from reader.peek()) == ".":
        reader.advance()
        yield from _digits(reader)
    if (yield from reader.peek()) in ("e", "E"):
        reader.advance()
        if (yield from reader.peek()) in ("+", "-"):
            reader.advance()
        yield from _digits(reader)


def _digits(reader: Reader) -> Reading[None]:
    if (yield from reader.peek()) not in _DIGITS:
        raise Mismatch
    while (yield from reader.peek()) in _DIGITS:
        reader.advance()
