"""Tokens per second of one to 32 sequences that generate together, and of a prompt, by threads.

    python benchmarks/bench_sequences.py --threads 1,2,4,8,16 --folder /tmp qwen2-1.5b llama3-8b \\
        [--peer llama.cpp=PYTHON] [--sequences 1,8,32] [--json CURVES.json]

Steps are run one by one, without the engine's scheduler. Engines keep the model loaded and take
turns in every round. A rate is the best of the rounds, because a busy machine can only make it
worse; a ratio is the median of the rounds' ratios. One sequence is decode. `model_of_cores.py`
fits a model to CURVES.json and predicts more cores.
"""

import argparse
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from operator import methodcaller
from pathlib import Path

import numpy as np

import models
from arguments import numbers
from ingot import _native
from ingot.gguf import GgufLoader
from ingot.graph.fusion import fuse
from ingot.models import build_graph
from peer import Peer, named_interpreter
from stepper import Stepper
from versus_llama_cpp import CEILING, OURS, READ_BYTES, Machine, Race, Rates, share_used, step_bytes

SEQUENCES = (1, 2, 4, 8, 16, 32)
STEPS, ROUNDS, PROMPT = 4, 3, 512


@dataclass(frozen=True, slots=True)
class Point:
    """One test with one number of threads."""

    threads: int
    sequences: int  # that generate together; 0: a prompt
    tokens: int  # of a step
    rates: Mapping[str, float]  # tokens per second, by engine
    ratios: Mapping[str, float]  # of Ingot to the others
    read: float  # bytes per second of a plain read by as many threads


@dataclass(frozen=True, slots=True)
class Curve:
    """All tests of one model on this machine."""

    model: str
    isa: str
    bytes: float  # of weights that a step of one sequence reads
    rows: Mapping[str, float]  # of these bytes, those of matrices with so many rows
    operations: int
    points: list[Point]


def matrix_rows(path: Path) -> dict[str, float]:
    """The bytes that a step reads of all matrices with a number of rows."""
    found: dict[str, float] = {}
    with GgufLoader(path) as model:
        for name, tensor in model.tensors.items():
            is_table = name == "token_embd.weight" and "output.weight" in model.tensors
            if len(tensor.shape) > 1 and not is_table:
                rows = str(tensor.shape[-2])
                used = tensor.nbytes * share_used(model, name)
                found[rows] = found.get(rows, 0.0) + used
    return found


def operations(path: Path) -> int:
    """Operations of a step, between which all threads wait for each other."""
    with GgufLoader(path) as model:
        return len(fuse(build_graph(model, None)).ops)


def point(threads: int, sequences: int, tokens: int, rates: Rates) -> Point:
    """What the rounds of a test say."""
    reads = rates.pop(CEILING)
    ratios = {
        name: statistics.median(a / b for a, b in zip(rates[OURS], other, strict=True))
        for name, other in rates.items()
        if name != OURS
    }
    best = {name: max(of_rounds) for name, of_rounds in rates.items()}
    return Point(threads, sequences, tokens, best, ratios, max(reads))


def measure(
    path: Path,
    machine: Machine,
    peers: Mapping[str, Peer],
    sequences: Sequence[int],
    precision: str | None,
) -> Iterator[Point]:
    """Each number of sequences, then the prompt; the engines take turns."""
    context, most = PROMPT + 128, max(sequences, default=1)
    for peer in peers.values():
        peer.open(path, threads=machine.threads, context=context, sequences=most)
    mine = Stepper(
        path, threads=machine.threads, context=context, sequences=most, precision=precision
    )
    race = Race(mine, dict(peers), ROUNDS)
    read = machine.bytes_per_second
    for count in sequences:
        decode = methodcaller("generate", STEPS, 0, count)
        yield point(machine.threads, count, count, race.run(STEPS * count, decode, read))
    prompt = race.run(PROMPT, methodcaller("prompt", PROMPT), read)
    yield point(machine.threads, 0, PROMPT, prompt)
    mine.close()


def show(model: str, threads: int, points: Sequence[Point]) -> None:
    """Print the lines of one number of threads: each engine, and the ratio to it."""
    for name in points[0].rates:
        row = "".join(f"{each.rates[name]:9.1f}" for each in points)
        print(f"{model:24} {threads:7} {name:12}{row}", flush=True)
        if name != OURS:
            row = "".join(f"{each.ratios[name]:8.2f}x" for each in points)
            print(f"{'':32} {'ratio':12}{row}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("shapes", nargs="+", help="of benchmarks/synthetic.py")
    parser.add_argument("--mix", default="Q4_K_M")
    parser.add_argument("--threads", type=numbers, default=(2,), metavar="N,N")
    parser.add_argument("--sequences", type=numbers, default=SEQUENCES, metavar="N,N")
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        type=named_interpreter,
        metavar="NAME=PYTHON",
        help="an interpreter with llama.cpp (benchmarks/peer.py); may be repeated",
    )
    parser.add_argument("--precision", choices=["fast", "exact"])
    parser.add_argument("--folder", type=Path, default=Path("/tmp"))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the curves to FILE")
    options = parser.parse_args()
    heads = "".join(f"{f'{n} seq':>9}" for n in options.sequences)
    print(f"{'model':24} threads {'engine':12}{heads}{'prompt':>9}")
    memory, curves = np.ones(READ_BYTES, np.uint8), []
    with ExitStack() as stack:
        peers = {
            name: stack.enter_context(Peer(python, repack=name.endswith("+repack")))
            for name, python in options.peer
        }
        for shape in options.shapes:
            path = models.synthetic(shape, options.mix, options.folder)
            curve = Curve(
                model=path.stem,
                isa=_native.active_isa(),
                bytes=step_bytes(path),
                rows=matrix_rows(path),
                operations=operations(path),
                points=[],
            )
            curves.append(curve)
            for threads in options.threads:
                machine = Machine(threads, memory)
                found = measure(path, machine, peers, options.sequences, options.precision)
                points = list(found)
                show(path.stem, threads, points)
                curve.points.extend(points)
                if options.json:  # after each, so that a run that is broken off leaves a part
                    options.json.write_text(json.dumps([asdict(each) for each in curves], indent=1))


if __name__ == "__main__":
    main()
