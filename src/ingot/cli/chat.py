"""`ingot chat`: a conversation at the terminal, or a message from every line of a pipe."""

import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import Annotated, cast

import typer

from ingot.api import LLM
from ingot.chat import Overflow
from ingot.cli.chat_commands import find_command, run_command
from ingot.cli.chat_input import ReadLine, Terminal, read_message, read_piped_line
from ingot.cli.chat_talk import Talk
from ingot.cli.interrupts import INTERRUPTED, any_interrupts
from ingot.cli.models import ModelOption, locate
from ingot.cli.opening import open_llm, tell_placement
from ingot.cli.options import (
    ContextOption,
    DeviceOption,
    GpuLayersOption,
    KvTypeOption,
    ThreadsOption,
    WeightsOption,
)
from ingot.cli.sampling import takes_sampling_flags
from ingot.cli.text import error_text, notice
from ingot.config import config
from ingot.errors import IngotError
from ingot.sampling import SamplingParams

_TEMPLATE_KEY = "tokenizer.chat_template"


@takes_sampling_flags
def command(
    *,
    model: ModelOption = None,
    system: Annotated[
        str | None, typer.Option("--system", help="What the model is told before everything else.")
    ] = None,
    max_tokens: Annotated[
        int, typer.Option("-n", "--max-tokens", min=1, help="Tokens of an answer at most.")
    ] = 1024,
    sampling: SamplingParams,
    overflow: Annotated[
        str,
        typer.Option(
            "--overflow",
            help="Where a conversation does not fit the context: error, or drop (leave its "
            "oldest messages out).",
        ),
    ] = "error",
    threads: ThreadsOption = None,
    context: ContextOption = None,
    kv_type: KvTypeOption = "f16",
    weights: WeightsOption = "map",
    device: DeviceOption = "cpu",
    gpu_layers: GpuLayersOption = None,
) -> None:
    """Chat with a model. Answers go to stdout as they are written, notices to stderr.

    Lines that begin with a slash are commands: /help lists them. A line that ends in a backslash
    goes on in the next one; lines between two lines of three double quotes are one message.
    Ctrl-C stops an answer, Ctrl-D leaves. Piped input is a message a line, and ends at the first
    error.
    """
    at_terminal = sys.stdin.isatty()
    with open_llm(
        locate(model),
        threads=threads,
        context=context,
        kv_type=kv_type,
        weights=weights,
        device=device,
        gpu_layers=gpu_layers,
    ) as llm:
        params = replace(sampling, max_tokens=max_tokens)
        talk = Talk(llm, system, params, cast("Overflow", overflow))
        if _TEMPLATE_KEY not in llm.file.metadata:
            notice("the model has no chat template: messages are written as ChatML")
        if at_terminal:
            tell_placement(llm.engine.model)
            notice(f"{_name(llm)}: /help lists the commands, Ctrl-D leaves")
        lines = Terminal(config().cache / "chat_history") if at_terminal else None
        # At a terminal Ctrl-C stops an answer, and not the chat.
        with (
            any_interrupts() if at_terminal else nullcontext(),
            lines or nullcontext(read_piped_line) as read,
        ):
            _converse(talk, read, at_terminal=at_terminal)


def _converse(talk: Talk, read: ReadLine, *, at_terminal: bool) -> None:
    """Answer messages until there are no more; at a terminal nothing else ends it."""
    while True:
        try:
            interrupted = _take_turn(talk, read)
        except EOFError:
            break
        except KeyboardInterrupt:
            if not at_terminal:
                raise
            print(file=sys.stderr)
            notice("Ctrl-D or /exit leaves")
        except (IngotError, OSError) as error:
            if not at_terminal or isinstance(error, BrokenPipeError):
                raise
            notice(f"error: {error_text(error)}")
        else:
            if interrupted and not at_terminal:
                raise typer.Exit(INTERRUPTED)
    if at_terminal:
        print(file=sys.stderr)


def _take_turn(talk: Talk, read: ReadLine) -> bool:
    """Read a message and answer it; whether Ctrl-C ended the answer."""
    message = read_message(read)
    if not message.strip():
        return False
    if found := find_command(message):
        return run_command(talk, *found)
    return talk.say(message)


def _name(llm: LLM) -> str:
    return llm.file.metadata.string("general.name", "") or llm.path.name
