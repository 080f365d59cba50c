"""`ingot tokenize`: text to ids, to see where a model cuts."""

import sys
from typing import Annotated

import typer

from ingot.cli.models import ModelOption, locate
from ingot.cli.text import write_json
from ingot.cli.tokens import piece, write_tokens
from ingot.gguf import GgufLoader
from ingot.tokenizer import Tokenizer


def command(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text; `-` reads stdin.")],
    *,
    model: ModelOption = None,
    no_special: Annotated[
        bool,
        typer.Option("--no-special", help="Leave out what the model puts around a text (BOS)."),
    ] = False,
    parse_special: Annotated[
        bool,
        typer.Option("--parse-special", help="Find control tokens that the text spells."),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Write JSON, for programs: `ids` and `pieces`.")
    ] = False,
) -> None:
    """Turn text into tokens: ids and pieces side by side, one line per token.

    In JSON, a piece that is no whole UTF-8 character by itself has U+FFFD for its bytes.
    """
    with GgufLoader(locate(model)) as loader:
        tokenizer = Tokenizer.from_metadata(loader.metadata)
        content = (
            sys.stdin.buffer.read() if text == "-" else text.encode("utf-8", "surrogateescape")
        )
        ids = tokenizer.encode(content, add_special=not no_special, parse_special=parse_special)
        if json:
            write_json({"ids": ids, "pieces": [piece(tokenizer, number) for number in ids]})
        else:
            write_tokens(tokenizer, ids)
