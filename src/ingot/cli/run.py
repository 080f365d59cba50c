"""`ingot run`: a prompt in, the model's text out, as it is written."""

import sys
import time
from typing import Annotated

import typer

from ingot.api import LLM
from ingot.cli.models import ModelOption, locate
from ingot.cli.text import notice, printable
from ingot.errors import ConfigError

_EXAMPLE = "Explain in two sentences why the sky is blue."


def command(
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help="The prompt; `-` reads stdin. Default: an example."),
    ] = None,
    *,
    model: ModelOption = None,
    max_tokens: Annotated[
        int, typer.Option("-n", "--max-tokens", help="Tokens to write at most.")
    ] = 256,
    temperature: Annotated[
        float, typer.Option("--temperature", help="0 takes the likeliest token each time.")
    ] = 0.0,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Makes draws at a temperature repeatable.")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text; do not ask as a chat message.")
    ] = False,
    threads: Annotated[int | None, typer.Option("-t", "--threads", help="CPU threads.")] = None,
    context: Annotated[
        int | None, typer.Option("-c", "--context", help="Tokens to make room for.")
    ] = None,
    kv_type: Annotated[
        str, typer.Option("--kv-type", help="How keys and values are stored.")
    ] = "f16",
) -> None:
    """Generate text. Ctrl-C stops it; timings go to stderr."""
    started = time.perf_counter()
    text = _EXAMPLE if prompt is None else sys.stdin.read() if prompt == "-" else prompt
    with LLM(locate(model), threads=threads, context=context, kv_type=kv_type) as llm:
        ids = llm.tokenizer.encode(text) if raw else llm.chat_ids(text)
        if not ids:
            raise ConfigError("the prompt is empty")
        loaded = time.perf_counter()
        stream = llm.stream(
            ids, max_tokens=max_tokens, temperature=temperature, seed=seed, progress=_show_prompt
        )
        first, tokens = None, 0
        try:
            for piece in stream:
                first = first or time.perf_counter()
                sys.stdout.write(printable(piece, keep="\n\t") if sys.stdout.isatty() else piece)
                sys.stdout.flush()
        except KeyboardInterrupt:
            stream.close()
        print(flush=True)
        done = time.perf_counter()
        timings = stream.timings
        tokens = timings.generated_tokens
        notice(
            f"load {loaded - started:.2f} s, first token {(first or done) - started:.2f} s, "
            f"prompt {timings.prompt_tokens} tokens at "
            f"{_rate(timings.prompt_tokens, timings.prompt_seconds)} t/s, "
            f"generation {tokens} tokens at {_rate(tokens, timings.generation_seconds)} t/s"
        )


def _rate(tokens: int, seconds: float) -> str:
    return f"{tokens / seconds:.1f}" if seconds > 0 else "-"


def _show_prompt(done: int, total: int) -> None:
    """How far a long prompt is, on a terminal, on one line that disappears."""
    if total > 1024 and sys.stderr.isatty():
        end = "" if done < total else "\r\033[K"
        sys.stderr.write(f"\rreading the prompt: {done} of {total} tokens{end}")
        sys.stderr.flush()
