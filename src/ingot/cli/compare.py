"""`ingot compare`: how far a model is from another one on a text, for example after quantization.

Both models read the same chunks of a text, as in `ingot perplexity`; the tokens of each second half
count. KL is the Kullback-Leibler divergence of B's prediction from A's, in nats per token.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from ingot.api import LLM
from ingot.arrays import Floats
from ingot.bar import Bar
from ingot.cli.shared.bars import bars_svg
from ingot.cli.shared.chunks import split_chunks
from ingot.cli.shared.find_model import locate
from ingot.cli.shared.model_options import ThreadsOption
from ingot.cli.shared.output import printable, size, write_columns, write_json
from ingot.errors import ConfigError
from ingot.files import write_file

_ROWS = 32  # rows of logits that are compared at once
_WIDTH = 40  # characters of the longest bar
_BOUNDS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # of the bars


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two models make of a text."""

    tokens: int
    size_a: int
    size_b: int
    perplexity_a: float
    perplexity_b: float
    kl_mean: float
    kl_median: float
    kl_99: float  # of 99 in 100 tokens it is not larger
    kl_max: float
    same_top: float  # the share of tokens with the same most likely prediction
    kl_shares: tuple[float, ...]  # of tokens below each of _BOUNDS, and above


def command(
    a: Annotated[str, typer.Argument(metavar="A", help="The model to be compared with.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The other one, with the same vocabulary.")],
    text: Annotated[Path, typer.Argument(metavar="TEXTFILE", help="A UTF-8 text file.")],
    *,
    context: Annotated[
        int, typer.Option("-c", "--context", min=4, help="Chunk length in tokens.")
    ] = 512,
    chunks: Annotated[
        int | None, typer.Option("--chunks", min=1, help="At most so many. Default: all.")
    ] = None,
    threads: ThreadsOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.svg", help="Draw the KL divergence.")
    ] = None,
) -> None:
    """Compare two models on a text: perplexity, KL divergence, same first choice, size.

    Example: ingot compare model-F16.gguf model-Q4_K_M.gguf text.txt
    """
    if plot and plot.suffix.lower() != ".svg":
        raise ConfigError(f"--plot is {str(plot)!r}; its name must end in .svg")
    content = text.read_bytes().removesuffix(b"\n")
    with (
        LLM(locate(a), threads=threads, context=context) as first,
        LLM(locate(b), threads=threads, context=context) as second,
        Bar("comparing", "chunks") as bar,
    ):
        ids = first.tokenizer.encode(content)
        if second.tokenizer.encode(content) != ids:
            raise ConfigError(f"{a} and {b} have different vocabularies; compare models with one")
        split = split_chunks(ids, first.tokenizer, context, most=chunks)
        found = compare(first, second, split, bar)
    if plot:
        write_file(plot, [_drawing(found, a, b).encode()])
    if json:
        write_json(asdict(found))
        return
    _show(found)


def compare(a: LLM, b: LLM, chunks: Sequence[Sequence[int]], bar: Bar | None = None) -> Comparison:
    """Compare the predictions of the tokens in the second half of each chunk."""
    surprise: tuple[list[float], list[float]] = ([], [])
    divergences: list[float] = []
    same = 0
    for number, chunk in enumerate(chunks):
        if bar is not None:
            bar(number, len(chunks))
        middle = len(chunk) // 2
        targets = np.array(chunk[middle + 1 :])
        rows = zip(_predictions(a, chunk, middle), _predictions(b, chunk, middle), strict=True)
        for at, (left, right) in zip(range(0, len(targets), _ROWS), rows, strict=True):
            wanted = targets[at : at + _ROWS]
            places = np.arange(len(wanted))
            for scores, side in ((left, 0), (right, 1)):
                surprise[side].extend((-scores[places, wanted]).tolist())
            divergence = (np.exp(left) * (left - right)).sum(axis=1)
            divergences.extend(np.maximum(divergence, 0).tolist())
            same += int((left.argmax(axis=1) == right.argmax(axis=1)).sum())
    kl = np.array(divergences)
    edges = np.array([-1.0, *_BOUNDS, math.inf])
    return Comparison(
        tokens=len(kl),
        size_a=_size(a),
        size_b=_size(b),
        perplexity_a=math.exp(np.mean(surprise[0])),
        perplexity_b=math.exp(np.mean(surprise[1])),
        kl_mean=float(kl.mean()),
        kl_median=float(np.median(kl)),
        kl_99=float(np.quantile(kl, 0.99)),
        kl_max=float(kl.max()),
        same_top=same / len(kl),
        kl_shares=tuple(float(share) for share in np.histogram(kl, edges)[0] / len(kl)),
    )


def _predictions(llm: LLM, chunk: Sequence[int], middle: int) -> Iterator[NDArray[np.float64]]:
    """Log-probabilities of the tokens after the middle one, some rows at a time."""
    logits: Floats = llm.logits(chunk)[middle:-1]
    for start in range(0, len(logits), _ROWS):
        rows = logits[start : start + _ROWS].astype(np.float64)
        rows -= rows.max(axis=1, keepdims=True)
        yield rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))


def _size(llm: LLM) -> int:
    return sum(tensor.nbytes for tensor in llm.engine.model.file.tensors.values())


def _show(found: Comparison) -> None:
    change = found.perplexity_b / found.perplexity_a - 1
    write_columns(
        [
            ("", "A", "B"),
            ("size", size(found.size_a), size(found.size_b)),
            ("perplexity", f"{found.perplexity_a:.4f}", f"{found.perplexity_b:.4f}"),
        ],
        right=(1, 2),
    )
    print()
    write_columns(
        [
            ("perplexity of B", f"{change:+.2%}"),
            ("mean KL", f"{found.kl_mean:.6f}"),
            ("median KL", f"{found.kl_median:.6f}"),
            ("99% KL", f"{found.kl_99:.6f}"),
            ("largest KL", f"{found.kl_max:.6f}"),
            ("same first choice", f"{found.same_top:.2%}"),
            ("tokens", str(found.tokens)),
        ],
        right=(1,),
    )
    print()
    most = max(found.kl_shares)
    write_columns(
        [
            (name, f"{share:.1%}", "#" * round(_WIDTH * share / most))
            for name, share in _bars(found)
        ],
        right=(1,),
    )


def _drawing(found: Comparison, a: str, b: str) -> str:
    """The distribution as SVG."""
    lines = [
        f"A  {printable(a)}: {size(found.size_a)}, perplexity {found.perplexity_a:.4f}",
        f"B  {printable(b)}: {size(found.size_b)}, perplexity {found.perplexity_b:.4f}",
        f"mean KL {found.kl_mean:.6f}, median {found.kl_median:.6f}, 99% {found.kl_99:.6f}",
        f"same first choice {found.same_top:.2%}, of {found.tokens} tokens",
    ]
    return bars_svg("KL divergence of B from A, nats per token", lines, _bars(found))


def _bars(found: Comparison) -> list[tuple[str, float]]:
    names = [*(f"KL up to {bound:g}" for bound in _BOUNDS), f"KL above {_BOUNDS[-1]:g}"]
    return list(zip(names, found.kl_shares, strict=True))
