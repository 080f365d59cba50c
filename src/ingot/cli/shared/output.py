"""Output of commands: notices, sizes, columns, JSON, styled text, and escaped control characters.

Values come in; text goes to stdout (results) and stderr (notices). This module does not know
models. It imports rich only for `console`, because most commands do without it.
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingot.config import config
from ingot.errors import ConfigError, IngotError

if TYPE_CHECKING:
    from rich.console import Console

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_PIPED_WIDTH = 1000  # columns; output to a file or a program is neither cut nor wrapped


def size(count: int) -> str:
    """A number of bytes: `93.8 MiB`."""
    power = min((max(count, 1).bit_length() - 1) // 10, len(_UNITS) - 1)
    return f"{count} bytes" if power == 0 else f"{count / 1024**power:.1f} {_UNITS[power]}"


def quantity(count: int) -> str:
    """A count: `134.5 M`; exact below ten thousand."""
    if count < 10_000:
        return str(count)
    power = min((len(str(count)) - 1) // 3, 4)
    return f"{count / 1000**power:.1f} {' kMBT'[power]}"


def printable(text: str, keep: str = "") -> str:
    """The text with control characters escaped, so that a file cannot control the terminal."""
    return "".join(
        character if character.isprintable() or character in keep else _escaped(character)
        for character in text
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def notice(text: str) -> None:
    """Write a line to stderr: everything that is not the result."""
    print(printable(text), file=sys.stderr, flush=True)


def error_text(error: Exception) -> str:
    """An error as one line."""
    if isinstance(error, IngotError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return str(error)


def read_text(path: Path) -> str:
    """The text of a file named on the command line."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error}") from None


def write_json(value: object) -> None:
    """Write a value as indented JSON; NaN and infinities, which JSON lacks, become null."""
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
    """Write rows as columns two spaces apart; the columns in `right` are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join(cells).rstrip())


def console() -> "Console":
    """A rich console for stdout that prints text literally (no markup).

    It uses colours and bold only on a terminal, and only if the environment allows them.
    """
    from rich.console import Console  # noqa: PLC0415

    return Console(
        file=sys.stdout,
        width=None if sys.stdout.isatty() else _PIPED_WIDTH,
        color_system="auto" if config().styles else None,
        markup=False,
        highlight=False,
        emoji=False,
    )
