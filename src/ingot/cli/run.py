"""`ingot run`: generate text from a prompt and stream it to stdout."""

import time
from dataclasses import replace
from typing import Annotated

import typer

from ingot import store
from ingot.api import LLM
from ingot.cli.shared.adapter_flags import AdapterFlags
from ingot.cli.shared.answer import PromptBar, read_answer, write_answer
from ingot.cli.shared.find_model import ModelOption, locate
from ingot.cli.shared.flags import takes_flags
from ingot.cli.shared.interrupts import INTERRUPTED
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
    full_context,
    guess_fields,
    open_llm,
    parse_gpu_layers,
    parse_gpu_split,
    show_placement,
)
from ingot.cli.shared.output import notice, write_json
from ingot.cli.shared.sampling_options import SamplingFlags
from ingot.cli.shared.stdin import prompt_with_stdin
from ingot.engine import Request
from ingot.errors import ConfigError
from ingot.recommended import has_chat_template

_EXAMPLE = "Explain in two sentences why the sky is blue."


@takes_flags
def command(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL] PROMPT",
            help="The prompt; text from a pipe is appended to it, `-` is stdin alone. Default: an "
            "example prompt. Before it, a model may be named instead of with -m.",
        ),
    ] = None,
    *,
    model: ModelOption = None,
    max_tokens: Annotated[
        int, typer.Option("-n", "--max-tokens", min=0, help="Maximum number of tokens to generate.")
    ] = 256,
    sampling: SamplingFlags,
    system: Annotated[str | None, typer.Option("--system", help="The system message.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the answer with tokens and timings as JSON.")
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text without the chat template.")
    ] = False,
    threads: ThreadsOption = None,
    context: ContextOption = None,
    kv_type: KvTypeOption = "f16",
    weights: WeightsOption = "auto",
    precision: PrecisionOption = None,
    device: DeviceOption = "cpu",
    gpu_layers: GpuLayersOption = None,
    gpu_split: GpuSplitOption = None,
    speculation: SpeculationOption = "off",
    draft: DraftOption = None,
    adapters: AdapterFlags,
) -> None:
    """Generate text from a prompt. The text streams to stdout, a line of timings goes to stderr.

    Ctrl-C stops early: the text so far stays, the timings are printed, the exit status is 130.
    """
    started = time.perf_counter()
    model, prompt = _model_and_prompt(words or [], model)
    text = _text(prompt)
    if raw and system is not None:
        raise ConfigError("--raw continues a text, which has no system message; drop --system")
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
        loaded = time.perf_counter()
        show_placement(llm.engine.model)
        ids = _prompt_ids(llm, text, system, raw=raw)
        with PromptBar() as bar:
            params = replace(sampling.params(llm.defaults), max_tokens=max_tokens)
            written = llm.stream(ids, params, progress=bar, context_overflow="stop")
            if as_json:
                first, interrupted = read_answer(written, bar)
            else:
                first, interrupted = write_answer(written, bar)
        load, wait = loaded - started, first and first - started
        if as_json:
            write_json(_as_json(llm, written, load=load, first=wait))
        else:
            _show_timings(written, llm, load=load, first=wait)
    if interrupted:
        raise typer.Exit(INTERRUPTED)


def _model_and_prompt(words: list[str], model: str | None) -> tuple[str | None, str | None]:
    """Tell `MODEL PROMPT` from `PROMPT`; one word that is the name of a remote model is a model."""
    if not words or (len(words) == 1 and (model is not None or not store.is_remote(words[0]))):
        return model, words[0] if words else None
    if len(words) > 2:
        raise ConfigError(f"there are {len(words)} arguments; put the prompt in quotes")
    if model is not None:
        raise ConfigError(f"there are two models, {words[0]!r} and -m {model!r}; name one")
    return words[0], words[1] if len(words) == 2 else None


def _text(prompt: str | None) -> str:
    text = prompt_with_stdin(prompt)
    if text is None:
        notice(f"no prompt given, using an example: {_EXAMPLE}")
        return _EXAMPLE
    return text


def _prompt_ids(llm: LLM, text: str, system: str | None, *, raw: bool) -> list[int]:
    """The prompt's tokens: the text itself, or a user message in the chat template."""
    if not raw and system is None and not has_chat_template(llm.file):
        notice("the model has no chat template; it continues the text")
        raw = True
    if raw:
        return llm.tokenizer.encode(text)
    messages = [] if system is None else [{"role": "system", "content": system}]
    return llm.chat_prompt([*messages, {"role": "user", "content": text}])


def _as_json(llm: LLM, written: Request, *, load: float, first: float | None) -> dict[str, object]:
    timings = written.timings
    reply = llm.parse_reply(written.text)
    return {
        "model": str(llm.path),
        "text": written.text,
        "content": reply.content,
        "reasoning": reply.reasoning or None,
        "finish_reason": written.finish_reason or "interrupted",
        "seed": written.seed,
        "prompt_tokens": timings.prompt_tokens,
        "generated_tokens": timings.generated_tokens,
        "load_seconds": load,
        "first_token_seconds": first,
        "prompt_tokens_per_second": timings.prompt_rate,
        "generated_tokens_per_second": timings.generation_rate,
        "guessed_tokens": timings.guessed_tokens,
        "accepted_tokens": timings.accepted_tokens,
    }


def _show_timings(written: Request, llm: LLM, *, load: float, first: float | None) -> None:
    timings = written.timings
    parts = [f"load {load:.2f} s"]
    if first is not None:
        parts.append(f"first token {first:.2f} s")
    parts.append(f"prompt {timings.prompt_tokens} tokens, {timings.prompt_rate:.1f} t/s")
    parts.append(f"generated {timings.generated_tokens} tokens, {timings.generation_rate:.1f} t/s")
    if timings.guessed_tokens:
        parts.append(f"{timings.accepted_tokens} of {timings.guessed_tokens} guesses right")
    match written.finish_reason:
        case "length":
            parts.append("stopped at --max-tokens")
        case "context":
            parts.append(f"stopped because {full_context(llm)}")
    notice("; ".join(parts))
