"""The `ingot` command: one module per subcommand, imported on use.

The command line comes in. Results go to stdout, notices to stderr; the exit status is 0, 2 for an
error (one line, no traceback) or 130 for Ctrl-C. This module knows only the names of the
subcommands: `ingot.cli.NAME` has a function `command`, and its signature is the options.
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
from typer.completion import completion_init  # type: ignore[attr-defined]  # re-exported
from typer.core import TyperGroup

from ingot import __version__
from ingot.cli.shared.completion import COMPLETE_VARIABLE, PROGRAM
from ingot.cli.shared.interrupts import exit_on_second_interrupt
from ingot.cli.shared.output import error_text, notice
from ingot.config import is_set
from ingot.errors import IngotError
from ingot.machine import END_SIGNALS

COMMANDS: Final = {
    "run": "Generate text from a prompt.",
    "chat": "Chat with a model in the terminal.",
    "serve": "Serve models over HTTP: OpenAI-compatible API and a chat page.",
    "batch": "Answer a file of requests in OpenAI's batch format.",
    "info": "Show version, CPU features and settings.",
    "doctor": "Show what this machine can do and which models fit.",
    "search": "Find models on the hub.",
    "pull": "Download a model and print its path.",
    "list": "List the models on this machine.",
    "remove": "Remove a model from the disk.",
    "warm": "Compile the GPU kernels of a model ahead of time.",
    "convert": "Convert a checkpoint (safetensors) to a GGUF file.",
    "quantize": "Write a smaller file of a model.",
    "imatrix": "Measure which weights matter, for quantize.",
    "split": "Split a model into several files.",
    "merge": "Merge the parts of a model into one file.",
    "merge-lora": "Merge LoRA adapters into a model.",
    "edit": "Change the metadata of a file.",
    "bench": "Measure prefill and decode speed.",
    "perplexity": "Measure the perplexity of a model on a text.",
    "compare": "Compare two models on a text: perplexity, KL divergence, size.",
    "inspect": "Show what a GGUF file contains and how much memory it needs.",
    "ps": "List the loaded models of a running server.",
    "tokenize": "Split a text into tokens.",
    "template": "Render messages with a model's chat template.",
    "completion": "Print a script for completion in a shell.",
}
ALIASES: Final = {"ls": "list", "rm": "remove", "show": "inspect"}  # ollama's names


class _Subcommands(TyperGroup):
    """Imports a subcommand when it is used; reports an error as one line and status 2."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in COMMANDS:
            return None
        one = typer.Typer(add_completion=False, rich_markup_mode=None)
        one.command(cmd_name)(import_module(f"{__name__}.{name.replace('-', '_')}").command)
        return typer.main.get_command(one)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            other = {name: f"{name}, {alias}" for alias, name in ALIASES.items()}
            formatter.write_dl([(other.get(name, name), text) for name, text in COMMANDS.items()])

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with _errors_in_one_line():  # --help and --version print here
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        with _errors_in_one_line():
            result = super().invoke(ctx)
            sys.stdout.flush()  # if the reader has gone, fail here, where it is handled
            return result


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """Report expected errors as one line on stderr and exit with status 2."""
    try:
        yield
    except BrokenPipeError:
        raise  # typer exits quietly
    except (IngotError, OSError) as error:
        notice(f"error: {error_text(error)}")
        raise typer.Exit(2) from error


app = typer.Typer(
    cls=_Subcommands,
    help="Run language models from GGUF files.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help, without importing rich
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
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """The entry point of `ingot`."""
    for number in END_SIGNALS:
        if number != signal.SIGINT:  # which is in `exit_on_second_interrupt`
            signal.signal(number, lambda *_: sys.exit(128 + signal.SIGTERM))  # clean up, then exit
    warnings.showwarning = lambda message, *_: notice(f"warning: {message}")
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed; an opened file must not take its number
            setattr(sys, name, Path(os.devnull).open("r+"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for characters its encoding lacks
    if is_set(COMPLETE_VARIABLE):
        completion_init()
    with exit_on_second_interrupt():
        app(prog_name=PROGRAM)
