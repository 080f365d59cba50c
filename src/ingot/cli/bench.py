"""`ingot bench`: tokens per second, with llama-bench's tests, flags and field names."""

import statistics
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated

import typer

from ingot.api import LLM
from ingot.cli.models import ModelOption, locate
from ingot.cli.text import write_columns, write_json
from ingot.config import config
from ingot.errors import ConfigError


class Output(StrEnum):
    """How results are written."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Result:
    """One test, in llama-bench's names."""

    engine: str
    model_filename: str
    n_threads: int
    n_prompt: int
    n_gen: int
    n_depth: int
    avg_ts: float
    stddev_ts: float
    samples_ts: list[float]


def command(
    *,
    model: ModelOption = None,
    threads: Annotated[int | None, typer.Option("-t", "--threads", help="CPU threads.")] = None,
    n_prompt: Annotated[int, typer.Option("-p", "--n-prompt", help="Tokens of the prompt.")] = 512,
    n_gen: Annotated[int, typer.Option("-n", "--n-gen", help="Tokens to generate.")] = 64,
    n_depth: Annotated[
        int, typer.Option("-d", "--n-depth", help="Tokens of context before the test.")
    ] = 0,
    repetitions: Annotated[int, typer.Option("-r", "--repetitions", help="Times each.")] = 3,
    output: Annotated[Output, typer.Option("-o", "--output", help="table or json.")] = Output.TABLE,
) -> None:
    """Time a prompt and a generation, each after n-depth tokens of context."""
    if min(n_prompt, n_gen, n_depth) < 0 or repetitions < 1:
        raise ConfigError("numbers of tokens are 0 or more, repetitions 1 or more")
    path = locate(model)
    used = config().threads if threads is None else threads
    results = []
    with LLM(path, threads=used, context=n_depth + max(n_prompt, n_gen) + 8) as llm:
        for prompt, generated in ((n_prompt, 0), (0, n_gen)):
            if prompt + generated == 0:
                continue
            llm.timed_tokens(0, min(prompt, 64), min(generated, 4))  # warm up
            samples = [
                (prompt + generated) / llm.timed_tokens(n_depth, prompt, generated)
                for _ in range(repetitions)
            ]
            results.append(
                Result(
                    engine="ingot",
                    model_filename=str(path),
                    n_threads=used,
                    n_prompt=prompt,
                    n_gen=generated,
                    n_depth=n_depth,
                    avg_ts=statistics.mean(samples),
                    stddev_ts=statistics.pstdev(samples),
                    samples_ts=samples,
                )
            )
    if output is Output.JSON:
        write_json([asdict(result) for result in results])
        return
    write_columns(
        [
            ("test", "threads", "tokens/s", "+-"),
            *(
                (
                    (f"pp{r.n_prompt}" if r.n_prompt else f"tg{r.n_gen}")
                    + (f" @ d{r.n_depth}" if r.n_depth else ""),
                    str(r.n_threads),
                    f"{r.avg_ts:.2f}",
                    f"{r.stddev_ts:.2f}",
                )
                for r in results
            ),
        ],
        right=(1, 2, 3),
    )
