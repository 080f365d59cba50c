"""`ingot tokenize`: the tokens of a text, and how `template --tokens` shows them too.

On a terminal tokens are coloured: neighbours differ, control tokens stand out. A piece is quoted;
bytes that are not printable, or not complete UTF-8, are escaped.
"""

import sys
from collections.abc import Iterable
from itertools import cycle
from typing import Annotated

import typer

from ingot.cli.shared.find_model import ModelOption, locate
from ingot.cli.shared.output import console, printable, write_json
from ingot.convert import open_model
from ingot.tokenizer import Tokenizer

_CONTROL_STYLE = "bold magenta"
_STYLES = ("cyan", "green")


def command(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text; `-` reads stdin.")],
    *,
    model: ModelOption = None,
    no_special: Annotated[
        bool,
        typer.Option("--no-special", help="Do not add the special tokens (BOS, EOS)."),
    ] = False,
    parse_special: Annotated[
        bool,
        typer.Option("--parse-special", help="Recognize special tokens written in the text."),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON with `ids` and `pieces`.")
    ] = False,
) -> None:
    """Split a text into tokens: id and piece, one token per line.

    In JSON, bytes of a piece that are not a complete UTF-8 character become U+FFFD.
    """
    with open_model(locate(model)) as loader:
        tokenizer = Tokenizer.from_metadata(loader.metadata)
        content = (
            sys.stdin.buffer.read() if text == "-" else text.encode("utf-8", "surrogateescape")
        )
        ids = tokenizer.encode(content, add_special=not no_special, parse_special=parse_special)
        if json:
            write_json({"ids": ids, "pieces": [_piece(tokenizer, token) for token in ids]})
        else:
            write_tokens(tokenizer, ids)


def write_tokens(tokenizer: Tokenizer, ids: Iterable[int]) -> None:
    """Write one line per token: its id and its piece."""
    if not sys.stdout.isatty():
        for token in ids:
            print(f"{token:>7}  {_quoted(tokenizer, token)}")
        return
    from rich.text import Text  # noqa: PLC0415 (only for a terminal)

    out = console()
    for token, style in zip(ids, cycle(_STYLES), strict=False):
        chosen = _CONTROL_STYLE if tokenizer.is_control(token) else style
        line = Text.assemble((f"{token:>7}  ", "dim"), (_quoted(tokenizer, token), chosen))
        out.print(line, soft_wrap=True)


def _piece(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.token_bytes(token).decode("utf-8", "replace")


def _quoted(tokenizer: Tokenizer, token: int) -> str:
    text = tokenizer.token_bytes(token).decode("utf-8", "backslashreplace")
    return f'"{printable(text)}"'
