"""`ingot perplexity`: how surprised a model is by a text, defined as llama.cpp does.

The text is cut into chunks of `context` tokens; what is left over is not used. Of each chunk
the tokens behind its middle are scored, so that all of them have at least half a chunk before
them. Where the vocabulary starts texts with BOS, BOS takes the place of each chunk's first token.
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
from ingot.cli.models import ModelOption, locate
from ingot.cli.opening import open_llm, tell_placement
from ingot.cli.options import (
    DeviceOption,
    GpuLayersOption,
    KvTypeOption,
    ThreadsOption,
    WeightsOption,
)
from ingot.cli.text import write_json
from ingot.engine import OnProgress
from ingot.errors import ConfigError

_CHUNKS = 2  # at least, as in llama.cpp


@dataclass(frozen=True, slots=True)
class Perplexity:
    """exp of the mean negative log-likelihood, and the standard error of that."""

    perplexity: float
    standard_error: float
    tokens: int  # scored
    chunks: int
    context: int


def command(
    text: Annotated[Path, typer.Argument(metavar="TEXTFILE", help="A text file, UTF-8.")],
    *,
    model: ModelOption = None,
    context: Annotated[
        int, typer.Option("-c", "--context", min=4, help="Tokens of a chunk.")
    ] = 512,
    threads: ThreadsOption = None,
    kv_type: KvTypeOption = "f16",
    weights: WeightsOption = "map",
    device: DeviceOption = "cpu",
    gpu_layers: GpuLayersOption = None,
    json: Annotated[bool, typer.Option("--json", help="Write JSON, for programs.")] = False,
) -> None:
    """Measure how well a model predicts a text: its perplexity, lower is better.

    Chunks of `context` tokens are scored one by one, the second half of each, as llama.cpp does.
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
            device=device,
            gpu_layers=gpu_layers,
        ) as llm,
        Bar("scoring", "chunks") as bar,
    ):
        found = measure(llm, llm.tokenizer.encode(content), context, bar)
        bar.clear()
        tell_placement(llm.engine.model)
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
    """Score the tokens of a text."""
    if len(ids) < _CHUNKS * context:
        raise ConfigError(
            f"the text has {len(ids)} tokens and needs at least {_CHUNKS * context}, {_CHUNKS} "
            f"chunks of {context}: take a longer text or a smaller --context"
        )
    bos = llm.tokenizer.bos_id if llm.tokenizer.adds_bos else None
    chunks = len(ids) // context
    scores = []
    for index in range(chunks):
        if progress:
            progress(index, chunks)
        chunk = np.array(ids[index * context : (index + 1) * context])
        if bos is not None:
            chunk[0] = bos
        scores.append(_surprise(llm, chunk))
    all_scores = np.concatenate(scores)
    perplexity = math.exp(all_scores.mean())
    return Perplexity(
        perplexity=perplexity,
        standard_error=perplexity * float(all_scores.std()) / math.sqrt(len(all_scores) - 1),
        tokens=len(all_scores),
        chunks=chunks,
        context=context,
    )


def _surprise(llm: LLM, chunk: NDArray[np.int64]) -> NDArray[np.float64]:
    """Negative log-likelihood of each token after the one in the middle."""
    middle = len(chunk) // 2
    return -np.array(llm.score(chunk, first=middle + 1).logprobs)
