"""Text for people and programs: sizes, tables, JSON, and strangers' strings made harmless.

It writes to stdout and stderr and knows neither rich nor models.
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ingot.errors import ConfigError, IngotError

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size(count: int) -> str:
    """A number of bytes: `93.8 MiB`."""
    power = min((max(count, 1).bit_length() - 1) // 10, len(_UNITS) - 1)
    return f"{count} bytes" if power == 0 else f"{count / 1024**power:.1f} {_UNITS[power]}"


def quantity(count: int) -> str:
    """A number of things: `134.5 M`, exactly below ten thousand."""
    if count < 10_000:
        return str(count)
    power = min((len(str(count)) - 1) // 3, 4)
    return f"{count / 1000**power:.1f} {' kMBT'[power]}"


def printable(text: str, keep: str = "") -> str:
    """The text with control characters escaped: what a file says must not steer a terminal."""
    return "".join(
        character if character.isprintable() or character in keep else _escaped(character)
        for character in text
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def notice(text: str) -> None:
    """Tell the person at the terminal something that is not the result."""
    print(printable(text), file=sys.stderr, flush=True)


def error_text(error: Exception) -> str:
    """What an error says, in one line."""
    if isinstance(error, IngotError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return str(error)


def read_text(path: Path) -> str:
    """The text of a file that was named on the command line."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no text in UTF-8: {error}") from None


def write_json(value: object) -> None:
    """Write a value for programs: UTF-8, indented; numbers that JSON lacks become null."""
    print(json.dumps(_jsonable(value), indent=2, ensure_ascii=False, allow_nan=False))


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def write_columns(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Write rows as columns two spaces apart; columns in `right` are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join(cells).rstrip())
