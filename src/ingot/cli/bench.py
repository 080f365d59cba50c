"""`ingot bench`: tokens per second, with the tests, flags and field names of llama-bench.

A test is the prefill of P tokens or the decoding of N tokens, after D tokens of context. Options
that take a number also take a list; all combinations run.
"""

import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from math import prod
from pathlib import Path
from typing import Annotated

import typer

from ingot import _native
from ingot.bar import Bar
from ingot.cli.shared.find_model import ModelOption, locate
from ingot.cli.shared.model_options import (
    DeviceOption,
    GpuLayersOption,
    GpuSplitOption,
    KvTypeOption,
    NumaOption,
    PinThreadsOption,
    PrecisionOption,
    WeightsOption,
)
from ingot.cli.shared.open_model import (
    OpeningBar,
    parse_gpu_layers,
    parse_gpu_split,
    show_placement,
)
from ingot.cli.shared.output import printable, quantity, write_json
from ingot.config import config
from ingot.engine import LoadedModel
from ingot.engine.model.timed_tokens import timed_tokens
from ingot.errors import ConfigError
from ingot.graph.kv_layout import whole_blocks
from ingot.model_summary import architecture, quantization


class Output(StrEnum):
    """The formats of `--output`."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Test:
    """One measurement: prefill of `n_prompt` tokens or decoding of `n_gen`."""

    n_prompt: int
    n_gen: int
    n_depth: int
    n_sequences: int

    @property
    def tokens(self) -> int:
        """Tokens of all sequences together."""
        return self.n_sequences * (self.n_prompt + self.n_gen)

    @property
    def name(self) -> str:
        """As llama-bench writes it: pp512, tg64 @ d2048."""
        name = f"pp{self.n_prompt}" if self.n_prompt else f"tg{self.n_gen}"
        name += f" x {self.n_sequences}" if self.n_sequences > 1 else ""
        return name + (f" @ d{self.n_depth}" if self.n_depth else "")


@dataclass(frozen=True, slots=True)
class Result:
    """A test and its timings, with llama-bench's names; `n_sequences` and `engine` are ours."""

    engine: str
    cpu_isa: str
    model_filename: str
    model_type: str
    model_size: int
    model_n_params: int
    n_threads: int
    n_gpu_layers: int
    type_k: str
    type_v: str
    use_mmap: bool
    n_prompt: int
    n_gen: int
    n_depth: int
    n_sequences: int
    test_time: str
    avg_ns: int
    stddev_ns: int
    avg_ts: float
    stddev_ts: float
    samples_ns: list[int]
    samples_ts: list[float]


def command(
    *,
    model: ModelOption = None,
    threads: Annotated[
        str | None,
        typer.Option(
            "-t", "--threads", help="CPU threads. Default: one for each physical core it may use."
        ),
    ] = None,
    n_prompt: Annotated[
        str, typer.Option("-p", "--n-prompt", help="Prompt length in tokens; 0: skip this test.")
    ] = "512",
    n_gen: Annotated[
        str, typer.Option("-n", "--n-gen", help="Tokens to generate; 0: skip this test.")
    ] = "64",
    n_depth: Annotated[
        str, typer.Option("-d", "--n-depth", help="Tokens already in the context.")
    ] = "0",
    sequences: Annotated[
        str, typer.Option("-s", "--sequences", help="Sequences decoded together in each step.")
    ] = "1",
    repetitions: Annotated[
        int, typer.Option("-r", "--repetitions", min=1, help="Runs of each test.")
    ] = 3,
    kv_type: KvTypeOption = "f16",
    weights: WeightsOption = "auto",
    precision: PrecisionOption = None,
    numa: NumaOption = "auto",
    pin_threads: PinThreadsOption = False,
    device: DeviceOption = "cpu",
    gpu_layers: GpuLayersOption = None,
    gpu_split: GpuSplitOption = None,
    output: Annotated[
        Output, typer.Option("-o", "--output", help="Output format: table or json.")
    ] = Output.TABLE,
) -> None:
    """Measure prefill and decode speed in tokens per second, like llama-bench.

    -t, -p, -n, -d and -s take lists (-p 128,512); all combinations run.
    """
    teams = _numbers("--threads", threads, least=1) if threads else [config().threads]
    tests = [
        test
        for depth in _numbers("--n-depth", n_depth)
        for count in _numbers("--sequences", sequences, least=1, most=_native.MAX_GENERATION_TOKENS)
        for test in (
            *(Test(p, 0, depth, count) for p in _numbers("--n-prompt", n_prompt) if p),
            *(Test(0, n, depth, count) for n in _numbers("--n-gen", n_gen) if n),
        )
    ]
    if not tests:
        raise ConfigError("nothing to measure: --n-prompt and --n-gen are both 0")
    path = locate(model)
    results = []
    for team in teams:
        context = max(test.n_depth + test.n_prompt + test.n_gen for test in tests)
        with OpeningBar() as bar:
            opened = LoadedModel(
                path,
                threads=team,
                context=context,
                cache_tokens=whole_blocks(context) * max(test.n_sequences for test in tests),
                sequences=max(test.n_sequences for test in tests),
                kv_type=kv_type,
                weights=weights,
                precision=precision,
                numa=numa,
                pin_threads=pin_threads,
                device=device,
                gpu_layers=parse_gpu_layers(gpu_layers),
                gpu_split=parse_gpu_split(gpu_split),
                progress=bar,
            )
        with opened as loaded:
            show_placement(loaded)
            for result in _run(loaded, tests, repetitions, path):
                results.append(result)
                if output is Output.TABLE:
                    _write_row(result, heading=len(results) == 1)
    if output is Output.JSON:
        write_json([asdict(result) for result in results])


def _numbers(option: str, text: str, *, least: int = 0, most: int | None = None) -> list[int]:
    """Parse a number or a list like `1,2,3`."""
    parts = [part.strip() for part in text.split(",")]
    numbers = [int(part) for part in parts if part.isascii() and part.isdigit()]
    if len(numbers) < len(parts) or any(n < least or n > (most or n) for n in numbers):
        upper = "or more" if most is None else f"to {most}"
        raise ConfigError(
            f"{option} is {text!r}; it must be a number, {least} {upper}, or a list like 1,2,3"
        )
    return numbers


def _run(model: LoadedModel, tests: list[Test], repetitions: int, path: Path) -> Iterator[Result]:
    tensors = model.file.tensors.values()
    weights = sum(prod(tensor.shape) for tensor in tensors)
    kv_type = model.layout.type.value
    for test in tests:
        seconds = _seconds(model, test, repetitions)
        rates = [test.tokens / sample for sample in seconds]
        nanoseconds = [round(sample * 1e9) for sample in seconds]
        yield Result(
            engine="ingot",
            cpu_isa=config().isa,
            model_filename=str(path),
            model_type=f"{architecture(model.file)} {quantity(weights)} {quantization(model.file)}",
            model_size=sum(tensor.nbytes for tensor in tensors),
            model_n_params=weights,
            n_threads=model.threads,
            n_gpu_layers=model.gpu.layers if model.gpu else 0,
            type_k=kv_type,
            type_v=kv_type,
            use_mmap=all(file.is_mapped for file in model.file.files),
            n_prompt=test.n_prompt,
            n_gen=test.n_gen,
            n_depth=test.n_depth,
            n_sequences=test.n_sequences,
            test_time=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            avg_ns=round(statistics.mean(nanoseconds)),
            stddev_ns=round(_deviation(nanoseconds)),
            avg_ts=statistics.mean(rates),
            stddev_ts=_deviation(rates),
            samples_ns=nanoseconds,
            samples_ts=rates,
        )


def _seconds(model: LoadedModel, test: Test, repetitions: int) -> list[float]:
    """Seconds of each repetition, after a short warm-up."""
    samples = []
    with Bar(f"{test.name}, {model.threads} threads", "runs") as bar:
        bar(0, repetitions)
        timed_tokens(
            model,
            prompt=min(test.n_prompt, 64),
            generated=min(test.n_gen, 4),
            sequences=test.n_sequences,
        )
        for done in range(1, repetitions + 1):
            samples.append(
                timed_tokens(
                    model,
                    prompt=test.n_prompt,
                    generated=test.n_gen,
                    depth=test.n_depth,
                    sequences=test.n_sequences,
                )
            )
            bar(done, repetitions)
    return samples


def _deviation(samples: list[float] | list[int]) -> float:
    return statistics.stdev(samples) if len(samples) > 1 else 0.0


def _write_row(result: Result, *, heading: bool) -> None:
    """Print one row as soon as it is measured; the column widths are fixed."""
    if heading:
        print(f"{'model':<28}{'threads':>8}  {'test':<20}{'tokens/s':>10}{'+-':>9}")
    test = Test(result.n_prompt, result.n_gen, result.n_depth, result.n_sequences)
    print(
        f"{printable(result.model_type):<28}{result.n_threads:>8}  {test.name:<20}"
        f"{result.avg_ts:>10.2f}{result.stddev_ts:>9.2f}",
        flush=True,
    )
