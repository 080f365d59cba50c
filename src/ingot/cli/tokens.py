"""Tokens as `tokenize` and `template --tokens` show them: ids and pieces side by side.

Ids come in; one line per token goes to stdout, coloured on a terminal: neighbours differ, control
tokens stand out. A piece is quoted; what cannot be printed, or is no whole UTF-8, is escaped.
"""

import sys
from collections.abc import Iterable
from itertools import cycle

from ingot.cli.text import printable
from ingot.tokenizer import Tokenizer

_CONTROL_STYLE = "bold magenta"
_STYLES = ("cyan", "green")


def write_tokens(tokenizer: Tokenizer, ids: Iterable[int]) -> None:
    """Write one line per token."""
    if not sys.stdout.isatty():
        for number in ids:
            print(f"{number:>7}  {_quoted(tokenizer, number)}")
        return
    from rich.text import Text  # noqa: PLC0415 (rich, only to draw)

    from ingot.cli.terminal import console  # noqa: PLC0415

    out = console()
    for number, style in zip(ids, cycle(_STYLES), strict=False):
        chosen = _CONTROL_STYLE if tokenizer.is_control(number) else style
        line = Text.assemble((f"{number:>7}  ", "dim"), (_quoted(tokenizer, number), chosen))
        out.print(line, soft_wrap=True)


def piece(tokenizer: Tokenizer, number: int) -> str:
    """A token's text; bytes that are no UTF-8 by themselves become U+FFFD."""
    return tokenizer.token_bytes(number).decode("utf-8", "replace")


def _quoted(tokenizer: Tokenizer, number: int) -> str:
    text = tokenizer.token_bytes(number).decode("utf-8", "backslashreplace")
    return f'"{printable(text)}"'
