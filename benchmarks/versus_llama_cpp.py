"""Ingot and llama.cpp on the same files, threads and machine, in one interleaved run.

    python benchmarks/versus_llama_cpp.py --peer PYTHON [--isa avx2] [--models FOLDER] [--json]

It measures prefill of 512 tokens, decode with an empty context and after 2048 tokens, and eight
sequences in one step (for other formats of the same shape, only the first two). Both engines keep
the model loaded; each round times one and then the other, so a slow moment of the machine affects
both. It prints medians, the median of the rounds' ratios, and the share of the ceiling measured in
the same run: for decode the bandwidth of a plain read, for prefill the rate of the multiply
instruction.

PYTHON is an interpreter with llama-cpp-python, built for the instruction set to compare (see
benchmarks/peer.py). Synthetic models are written to FOLDER once (about 24 GB in all; models with
experts have real layers, but fewer of them).
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from math import prod
from pathlib import Path

import numpy as np

import models
from ingot import _native
from ingot.gguf import GgufLoader
from peer import Peer
from stepper import Stepper

SYNTHETIC = (
    ("qwen2-1.5b", "Q4_K_M"),
    ("qwen2-1.5b", "Q8_0"),
    ("qwen2-1.5b", "Q5_K"),
    ("qwen2-1.5b", "Q6_K"),
    ("qwen2-1.5b", "IQ4_XS"),
    ("phi2-2.7b", "Q4_K_M"),
    ("mixtral-8x7b-6-layers", "Q4_K_M"),
    ("qwen3-30b-a3b-12-layers", "Q4_K_M"),
    ("gpt-oss-20b-10-layers", "MXFP4"),
)
PROMPT, GENERATED, DEPTH, SEQUENCES = 512, 32, 2048, 8


@dataclass(frozen=True, slots=True)
class Row:
    """One test on one model: tokens per second of both, and the median of the ratios."""

    model: str
    test: str
    ingot: float
    llama_cpp: float
    ratio: float
    of_ceiling: float


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What the machine can do at most."""

    bytes_per_second: float
    operations_per_second: float


def read_bandwidth(threads: int) -> float:
    """Bytes per second of a plain read of memory far larger than the caches; the best of 5."""
    data = np.ones(1 << 30, np.uint8)
    best = 0.0
    for _ in range(5):
        started = time.perf_counter()
        _native.read_through(data, threads)
        best = max(best, len(data) / (time.perf_counter() - started))
    return best


def multiply_peak(threads: int) -> float:
    """Multiplications and additions per second that the prompt kernels' instruction can do."""

    def run() -> int:
        return _native.multiply_in_registers(2_000_000)

    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(5):
            started = time.perf_counter()
            done = sum(task.result() for task in [pool.submit(run) for _ in range(threads)])
            best = max(best, done / (time.perf_counter() - started))
    return best


def share_used(model: GgufLoader, name: str) -> float:
    """The share of a tensor that one token uses: of experts, those it chooses."""
    if "_exps." not in name:
        return 1.0
    architecture = model.metadata.string("general.architecture")
    used = model.metadata.integer(f"{architecture}.expert_used_count")
    return used / model.metadata.integer(f"{architecture}.expert_count")


def prompt_operations(path: Path) -> float:
    """Multiplications and additions of the matrices for one token of a prompt."""
    with GgufLoader(path) as model:
        return sum(
            2 * prod(tensor.shape) * share_used(model, name)
            for name, tensor in model.tensors.items()
            if len(tensor.shape) > 1 and name.startswith("blk.")
        )


def step_bytes(path: Path) -> float:
    """Bytes of weights that one generation step of one sequence reads."""
    with GgufLoader(path) as model:
        total = sum(
            tensor.nbytes * share_used(model, name) for name, tensor in model.tensors.items()
        )
        if "output.weight" in model.tensors:  # then of the embedding only a row is read
            total -= model.tensors["token_embd.weight"].nbytes
    return total


def compare(
    rounds: int, tokens: int, ours: Callable[[], float], theirs: Callable[[], float]
) -> tuple[float, float, float]:
    """Median tokens per second of both and the median ratio, after one round to warm up."""
    ours(), theirs()
    pairs = [(tokens / ours(), tokens / theirs()) for _ in range(rounds)]
    return (
        statistics.median(pair[0] for pair in pairs),
        statistics.median(pair[1] for pair in pairs),
        statistics.median(pair[0] / pair[1] for pair in pairs),
    )


def run(
    path: Path, peer: Peer, threads: int, rounds: int, ceiling: Ceiling, *, brief: bool
) -> list[Row]:
    """All tests on one model; `brief`: a prompt and a generation only."""
    context = DEPTH + 3 * GENERATED * (rounds + 2)
    rows = []

    def add(test: str, numbers: tuple[float, float, float], most: float) -> None:
        ours, theirs, ratio = numbers
        rows.append(Row(path.stem, test, ours, theirs, ratio, ours / most))
        print_row(rows[-1])

    steps = ceiling.bytes_per_second / step_bytes(path)

    mine = Stepper(path, threads=threads, context=context)
    peer.open(path, threads=threads, context=context)
    add(
        f"prompt {PROMPT}",
        compare(rounds, PROMPT, lambda: mine.prompt(PROMPT), lambda: peer.prompt(PROMPT)),
        ceiling.operations_per_second / prompt_operations(path),
    )
    for depth in (0,) if brief else (0, DEPTH):
        add(
            f"generate, depth {depth}",
            compare(
                rounds,
                GENERATED,
                lambda: mine.generate(GENERATED, depth),  # noqa: B023
                lambda: peer.generate(GENERATED, depth),  # noqa: B023
            ),
            steps,
        )
    mine.close()
    if brief:
        return rows
    context = 3 * GENERATED * (rounds + 2)
    mine = Stepper(path, threads=threads, context=context, sequences=SEQUENCES)
    peer.open(path, threads=threads, context=context, sequences=SEQUENCES)
    add(
        f"generate, {SEQUENCES} sequences",
        compare(
            rounds,
            GENERATED * SEQUENCES,
            lambda: mine.generate(GENERATED, 0, SEQUENCES),
            lambda: peer.generate(GENERATED, 0, SEQUENCES),
        ),
        steps * SEQUENCES,
    )
    mine.close()
    return rows


def candidates(folder: Path) -> Iterator[tuple[str, Callable[[], Path]]]:
    """Names of the models, and how to get each."""
    yield "smollm2", models.smollm2
    yield "gemma", models.gemma
    for shape, mix in SYNTHETIC:
        yield f"{shape}-{mix}", partial(models.synthetic, shape, mix, folder)


def print_row(row: Row) -> None:
    print(
        f"{row.model:32} {row.test:22} {row.ingot:9.1f} {row.llama_cpp:9.1f} "
        f"{row.ratio:6.2f}x {row.of_ceiling:9.0%}",
        flush=True,
        file=sys.stderr,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", default=sys.executable, help="an interpreter with llama.cpp")
    parser.add_argument("--isa", help="Ingot's instruction set, e.g. avx2 (default: the best)")
    parser.add_argument("--models", type=Path, default=Path("build/models"), metavar="FOLDER")
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.isa:
        _native.set_isa(options.isa)
    ceiling = Ceiling(read_bandwidth(options.threads), multiply_peak(options.threads))
    print(
        f"{options.threads} threads, {_native.active_isa()}, a plain read: "
        f"{ceiling.bytes_per_second / 1e9:.1f} GB/s, multiplying alone: "
        f"{ceiling.operations_per_second / 1e12:.2f} TFLOP/s\n"
        f"{'model':32} {'test':22} {'Ingot t/s':>9} {'llama.cpp':>9} {'ratio':>7}"
        f"{'of ceiling':>11}",
        file=sys.stderr,
    )
    rows = []
    with Peer(options.peer) as peer:
        for name, path in candidates(options.models):
            if options.only in name:
                # Sequences that say the same would choose the same experts: no test of eight.
                other_format = name.startswith("qwen2") and "Q4_K_M" not in name
                brief = other_format or "-layers-" in name
                rows += run(path(), peer, options.threads, options.rounds, ceiling, brief=brief)
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
