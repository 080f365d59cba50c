"""`ingot chat`: a conversation in the terminal, or with one message per line of piped input."""

import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import Annotated, cast

import typer

from ingot.api import LLM
from ingot.chat import Overflow
from ingot.cli.chat.conversation import Conversation
from ingot.cli.chat.reading import ReadLine, Terminal, read_message, read_piped_line
from ingot.cli.chat.slash_commands import find_command, run_command
from ingot.cli.shared.adapter_flags import AdapterFlags
from ingot.cli.shared.find_model import ModelOption, locate
from ingot.cli.shared.flags import takes_flags
from ingot.cli.shared.interrupts import INTERRUPTED, survive_interrupts
from ingot.cli.shared.model_options import (
    ContextOption,
    DeviceOption,
    DraftOption,
    GpuLayersOption,
    GpuSplitOption,
    KvTypeOption,
    PrecisionOption,
    SpeculationOption,
    ThreadsOption,
    WeightsOption,
)
from ingot.cli.shared.open_model import (
    guess_fields,
    open_llm,
    parse_gpu_layers,
    parse_gpu_split,
    show_placement,
)
from ingot.cli.shared.output import error_text, notice
from ingot.cli.shared.sampling_options import SamplingFlags
from ingot.config import config
from ingot.errors import IngotError
from ingot.recommended import has_chat_template


@takes_flags
def command(
    *,
    model: ModelOption = None,
    system: Annotated[str | None, typer.Option("--system", help="The system message.")] = None,
    max_tokens: Annotated[
        int,
        typer.Option("-n", "--max-tokens", min=1, help="Maximum length of an answer in tokens."),
    ] = 1024,
    sampling: SamplingFlags,
    overflow: Annotated[
        str,
        typer.Option(
            "--overflow",
            help="When the conversation outgrows the context: error, or drop (omit the oldest "
            "messages).",
        ),
    ] = "error",
    threads: ThreadsOption = None,
    context: ContextOption = None,
    kv_type: KvTypeOption = "f16",
    weights: WeightsOption = "auto",
    precision: PrecisionOption = None,
    device: DeviceOption = "cpu",
    gpu_layers: GpuLayersOption = None,
    gpu_split: GpuSplitOption = None,
    speculation: SpeculationOption = "auto",
    draft: DraftOption = None,
    adapters: AdapterFlags,
) -> None:
    """Chat with a model in the terminal. Answers stream to stdout, notices go to stderr.

    Lines that start with a slash are commands; /help lists them. End a line with a backslash to
    continue on the next one, or put a message of several lines between lines of three double
    quotes. Ctrl-C stops the answer, Ctrl-D exits. Piped input is one message per line, and the
    first error ends it.
    """
    at_terminal = sys.stdin.isatty()
    with open_llm(
        locate(model),
        threads=threads,
        context=context,
        kv_type=kv_type,
        weights=weights,
        precision=precision,
        device=device,
        gpu_layers=parse_gpu_layers(gpu_layers),
        gpu_split=parse_gpu_split(gpu_split),
        **guess_fields(speculation, draft),
        **adapters.fields(),
    ) as llm:
        params = replace(sampling.params(llm.defaults), max_tokens=max_tokens)
        conversation = Conversation(llm, system, params, cast("Overflow", overflow))
        if not has_chat_template(llm.file):
            notice("the model has no chat template; using ChatML")
        if at_terminal:
            show_placement(llm.engine.model)
            notice(f"{_name(llm)}: /help lists the commands, Ctrl-D exits")
        lines = Terminal(config().cache / "chat_history") if at_terminal else None
        # In a terminal Ctrl-C stops the answer, not the chat.
        with (
            survive_interrupts() if at_terminal else nullcontext(),
            lines or nullcontext(read_piped_line) as read,
        ):
            _converse(conversation, read, at_terminal=at_terminal)


def _converse(conversation: Conversation, read: ReadLine, *, at_terminal: bool) -> None:
    """Answer messages until the input ends; in a terminal, errors do not end the chat."""
    while True:
        try:
            interrupted = _take_turn(conversation, read)
        except EOFError:
            break
        except KeyboardInterrupt:
            if not at_terminal:
                raise
            print(file=sys.stderr)
            notice("press Ctrl-D or type /exit to leave")
        except (IngotError, OSError) as error:
            if not at_terminal or isinstance(error, BrokenPipeError):
                raise
            notice(f"error: {error_text(error)}")
        else:
            if interrupted and not at_terminal:
                raise typer.Exit(INTERRUPTED)
    if at_terminal:
        print(file=sys.stderr)


def _take_turn(conversation: Conversation, read: ReadLine) -> bool:
    """Read a message and answer it; True if Ctrl-C stopped the answer."""
    message = read_message(read)
    if not message.strip():
        return False
    if found := find_command(message):
        return run_command(conversation, *found)
    return conversation.say(message)


def _name(llm: LLM) -> str:
    return llm.file.metadata.string("general.name", "") or llm.path.name
