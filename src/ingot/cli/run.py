"""`ingot run`: a prompt in, the model's text out, as it is written."""

import sys
import time
from typing import Annotated

import typer

from ingot.api import LLM
from ingot.cli import sampling
from ingot.cli.bar import Bar
from ingot.cli.models import ModelOption, locate
from ingot.cli.options import DeviceOption, KvTypeOption, ThreadsOption, WeightsOption
from ingot.cli.text import notice, printable
from ingot.engine import Generation
from ingot.errors import ConfigError

_EXAMPLE = "Explain in two sentences why the sky is blue."
_INTERRUPTED = 130
_LONG_PROMPT = 1024  # tokens: from here on a bar shows how far it is
_TEMPLATE_KEY = "tokenizer.chat_template"


def command(
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help="The prompt; `-` reads stdin. Default: an example."),
    ] = None,
    *,
    model: ModelOption = None,
    max_tokens: Annotated[
        int, typer.Option("-n", "--max-tokens", min=0, help="Tokens to write at most.")
    ] = 256,
    temperature: sampling.Temperature = None,
    top_k: sampling.TopK = None,
    top_p: sampling.TopP = None,
    min_p: sampling.MinP = None,
    typical_p: sampling.TypicalP = None,
    top_n_sigma: sampling.TopNSigma = None,
    repeat_penalty: sampling.RepeatPenalty = None,
    repeat_last_n: sampling.RepeatLastN = None,
    presence_penalty: sampling.PresencePenalty = None,
    frequency_penalty: sampling.FrequencyPenalty = None,
    dry_multiplier: sampling.DryMultiplier = None,
    xtc_probability: sampling.XtcProbability = None,
    mirostat: sampling.Mirostat = None,
    samplers: sampling.Samplers = None,
    seed: sampling.Seed = None,
    stop: sampling.Stop = None,
    ignore_eos: sampling.IgnoreEos = False,
    grammar_file: sampling.GrammarFile = None,
    json_schema: sampling.JsonSchema = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text; do not ask as a chat message.")
    ] = False,
    threads: ThreadsOption = None,
    context: Annotated[
        int | None, typer.Option("-c", "--context", help="Tokens to make room for.")
    ] = None,
    kv_type: KvTypeOption = "f16",
    weights: WeightsOption = "map",
    device: DeviceOption = "cpu",
) -> None:
    """Generate text. It goes to stdout as it is written; a line of timings goes to stderr.

    Ctrl-C ends it early: what was written stays, the timings are shown, the exit status is 130.
    """
    started = time.perf_counter()
    text = _text(prompt)
    params = sampling.make_params(
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        typical_p=typical_p,
        top_n_sigma=top_n_sigma,
        repeat_penalty=repeat_penalty,
        repeat_last_n=repeat_last_n,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        dry_multiplier=dry_multiplier,
        xtc_probability=xtc_probability,
        mirostat=mirostat,
        samplers=samplers,
        seed=seed,
        stop=stop,
        ignore_eos=ignore_eos,
        grammar_file=grammar_file,
        json_schema=json_schema,
    )
    with LLM(
        locate(model),
        threads=threads,
        context=context,
        kv_type=kv_type,
        weights=weights,
        device=device,
    ) as llm:
        loaded = time.perf_counter()
        ids = _prompt_ids(llm, text, raw=raw)
        with Bar("reading the prompt", "tokens") as bar:
            progress = bar if len(ids) >= _LONG_PROMPT else None
            written = llm.stream(ids, params, progress=progress)
            first, interrupted = _write(written, bar)
        _show_timings(written, load=loaded - started, first=first and first - started)
    if interrupted:
        raise typer.Exit(_INTERRUPTED)


def _text(prompt: str | None) -> str:
    if prompt is None:
        notice(f"no prompt was given: {_EXAMPLE}")
        return _EXAMPLE
    content = (
        sys.stdin.buffer.read() if prompt == "-" else prompt.encode("utf-8", "surrogateescape")
    )
    if not content.strip():
        raise ConfigError("the prompt is empty")
    return content.decode("utf-8", "replace")


def _prompt_ids(llm: LLM, text: str, *, raw: bool) -> list[int]:
    """The tokens of a text to continue, or of a message to answer."""
    metadata = llm.model.metadata
    if not raw and _TEMPLATE_KEY not in metadata:
        notice("the model has no chat template: it continues the text")
        raw = True
    if raw:
        return llm.tokenizer.encode(text)
    from ingot.tokenizer.chat_template import ChatTemplate  # noqa: PLC0415 (jinja2, if needed)

    template = ChatTemplate.from_metadata(metadata, llm.tokenizer)
    prompt = template.render([{"role": "user", "content": text}])
    return llm.tokenizer.encode(
        prompt.text, add_special=False, parse_special=True, plain_spans=prompt.plain_spans
    )


def _write(written: Generation, bar: Bar) -> tuple[float | None, bool]:
    """Write the text as it comes: when the first piece came, and whether Ctrl-C ended it."""
    first, interrupted = None, False
    on_terminal = sys.stdout.isatty()
    try:
        for piece in written:
            if first is None:
                first = time.perf_counter()
                bar.clear()
            sys.stdout.write(printable(piece, keep="\n\t") if on_terminal else piece)
            sys.stdout.flush()
    except KeyboardInterrupt:
        written.close()
        interrupted = True
    bar.clear()
    print(flush=True)
    return first, interrupted


def _show_timings(written: Generation, *, load: float, first: float | None) -> None:
    timings = written.timings
    parts = [f"load {load:.2f} s"]
    if first is not None:
        parts.append(f"first token {first:.2f} s")
    parts.append(f"prompt {timings.prompt_tokens} tokens, {timings.prompt_rate:.1f} t/s")
    parts.append(f"generated {timings.generated_tokens} tokens, {timings.generation_rate:.1f} t/s")
    match written.finish_reason:
        case "length":
            parts.append("ended by --max-tokens")
        case "context":
            parts.append("ended because the context is full (--context)")
    notice("; ".join(parts))
