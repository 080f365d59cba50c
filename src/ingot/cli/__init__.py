"""The command `ingot`: one module per subcommand, imported when it is used.

In comes the command line, out go text on stdout, notices on stderr and an exit status: 0, 2 for
any error (one line, no traceback), 130 for Ctrl-C. This module knows the subcommands' names and
nothing of what they do: `ingot.cli.NAME` has a function `command` whose signature is its options.
"""

import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from ingot import __version__
from ingot.cli.interrupts import two_interrupts
from ingot.cli.text import error_text, notice
from ingot.errors import IngotError

COMMANDS: Final = {
    "run": "Generate text.",
    "chat": "Chat with a model.",
    "serve": "Serve models over HTTP: OpenAI's API, and a page to chat.",
    "info": "Show the version, the CPU and what Ingot uses of it.",
    "pull": "Bring the default model into the cache and print its path.",
    "list": "List the models in the cache.",
    "bench": "Time prompts and generation.",
    "perplexity": "Measure how well a model predicts a text.",
    "inspect": "Show what is inside a GGUF file.",
    "tokenize": "Turn text into tokens.",
    "template": "Render a conversation with a model's chat template.",
}


class _Subcommands(TyperGroup):
    """Finds subcommands by importing them, and turns errors into one line and status 2."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        one = typer.Typer(add_completion=False, rich_markup_mode=None)
        one.command(cmd_name)(import_module(f"{__name__}.{cmd_name}").command)
        return typer.main.get_command(one)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with _errors_in_one_line():  # --help and --version write, too
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        with _errors_in_one_line():
            result = super().invoke(ctx)
            sys.stdout.flush()  # a reader that has gone shows here, where it is handled
            return result


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """Turn errors that can be expected into a line on stderr and status 2."""
    try:
        yield
    except BrokenPipeError:
        raise  # typer ends quietly
    except (IngotError, OSError) as error:
        notice(f"error: {error_text(error)}")
        raise typer.Exit(2) from error


app = typer.Typer(
    cls=_Subcommands,
    help="Run language models from GGUF files.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help, and no time spent on importing rich
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"ingot {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; the entry point of `ingot`."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # tidy up, then go
    warnings.showwarning = lambda message, *_: notice(f"warning: {message}")
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed: no file may be opened in its place
            setattr(sys, name, Path(os.devnull).open("r+"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what its encoding lacks
    with two_interrupts():
        app(prog_name="ingot")
