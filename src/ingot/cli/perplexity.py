"""`ingot perplexity`: the perplexity of a model on a text, as llama.cpp defines it.

The text is split into chunks of `context` tokens (`shared/chunks.py`). The tokens in the second
half of each chunk are scored, so each has at least half a chunk of context.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from ingot.api import LLM
from ingot.bar import Bar
from ingot.cli.shared.chunks import split_chunks
from ingot.cli.shared.find_model import ModelOption, locate
from ingot.cli.shared.model_options import (
    DeviceOption,
    GpuLayersOption,
    GpuSplitOption,
    KvTypeOption,
    PrecisionOption,
    ThreadsOption,
    WeightsOption,
)
from ingot.cli.shared.open_model import open_llm, parse_gpu_layers, parse_gpu_split, show_placement
from ingot.cli.shared.output import write_json
from ingot.engine import OnProgress

_CHUNKS = 2  # at least, as in llama.cpp


@dataclass(frozen=True, slots=True)
class Perplexity:
    """exp of the mean negative log-likelihood, and its standard error."""

    perplexity: float
    standard_error: float
    tokens: int  # scored
    chunks: int
    context: int


def command(
    text: Annotated[Path, typer.Argument(metavar="TEXTFILE", help="A UTF-8 text file.")],
    *,
    model: ModelOption = None,
    context: Annotated[
        int, typer.Option("-c", "--context", min=4, help="Chunk length in tokens.")
    ] = 512,
    threads: ThreadsOption = None,
    kv_type: KvTypeOption = "f16",
    weights: WeightsOption = "auto",
    precision: PrecisionOption = None,
    device: DeviceOption = "cpu",
    gpu_layers: GpuLayersOption = None,
    gpu_split: GpuSplitOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure how well a model predicts a text. Lower perplexity is better.

    The text is split into chunks; the second half of each chunk is scored, as in llama.cpp.
    """
    content = text.read_bytes().removesuffix(b"\n")
    path = locate(model)
    with (
        open_llm(
            path,
            threads=threads,
            context=context,
            kv_type=kv_type,
            weights=weights,
            precision=precision,
            device=device,
            gpu_layers=parse_gpu_layers(gpu_layers),
            gpu_split=parse_gpu_split(gpu_split),
        ) as llm,
        Bar("scoring", "chunks") as bar,
    ):
        show_placement(llm.engine.model)
        found = measure(llm, llm.tokenizer.encode(content), context, bar)
        bar.clear()
    if json:
        write_json(asdict(found))
        return
    print(
        f"perplexity {found.perplexity:.4f} +- {found.standard_error:.5f} "
        f"({found.tokens} tokens scored in {found.chunks} chunks of {found.context})"
    )


def measure(
    llm: LLM,
    ids: Sequence[int],
    context: int,
    progress: OnProgress | None = None,
) -> Perplexity:
    """Score a text that is split into chunks of `context` tokens."""
    chunks = split_chunks(ids, llm.tokenizer, context, least=_CHUNKS)
    scores = []
    for index, chunk in enumerate(chunks):
        if progress:
            progress(index, len(chunks))
        scores.append(_surprise(llm, np.array(chunk)))
    all_scores = np.concatenate(scores)
    perplexity = math.exp(all_scores.mean())
    return Perplexity(
        perplexity=perplexity,
        standard_error=perplexity * float(all_scores.std()) / math.sqrt(len(all_scores) - 1),
        tokens=len(all_scores),
        chunks=len(chunks),
        context=context,
    )


def _surprise(llm: LLM, chunk: NDArray[np.int64]) -> NDArray[np.float64]:
    """Negative log-likelihood of each token after the middle one."""
    middle = len(chunk) // 2
    return -np.array(llm.score(chunk, first=middle + 1).logprobs)
