"""`ingot template`: messages rendered as the prompt that the model reads."""

import sys
from json import JSONDecodeError, loads
from pathlib import Path
from typing import Annotated, Any

import typer

from ingot.cli.shared.find_model import ModelOption, locate
from ingot.cli.shared.output import printable
from ingot.cli.tokenize import write_tokens
from ingot.convert import open_model
from ingot.errors import ConfigError
from ingot.recommended import chat_template_of
from ingot.tokenizer import Tokenizer


def command(
    messages: Annotated[
        str,
        typer.Argument(
            metavar="MESSAGES",
            help='A JSON file, [{"role": "user", "content": "hi"}, ...]; `-` reads stdin.',
        ),
    ],
    *,
    model: ModelOption = None,
    tools: Annotated[
        str | None, typer.Option(metavar="FILE", help="A JSON file with a list of tools.")
    ] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Show the tokens instead of the text.")
    ] = False,
) -> None:
    """Render messages with a model's chat template, up to where the model's answer begins."""
    with open_model(locate(model)) as loader:
        tokenizer = Tokenizer.from_metadata(loader.metadata)
        template = chat_template_of(loader, tokenizer)
        conversation = _read_json(messages)
        prompt = template.render(conversation, tools=None if tools is None else _read_json(tools))
        if tokens:
            ids = tokenizer.encode(
                prompt.text,
                add_special=False,
                parse_special=True,
                plain_spans=prompt.plain_spans,
            )
            write_tokens(tokenizer, ids)
        elif sys.stdout.isatty():
            print(printable(prompt.text, keep="\n\t"))
        else:
            sys.stdout.write(prompt.text)  # exactly, without a newline


def _read_json(name: str) -> Any:
    content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    try:
        return loads(content)
    except (JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        source = "stdin" if name == "-" else name
        raise ConfigError(f"{source} is not JSON: {error}") from None
