"""Ingot and llama.cpp on the same files, threads and machine, in one interleaved run.

    python benchmarks/versus_llama_cpp.py --peer llama.cpp=PYTHON --peer ik=PYTHON \\
        --peer ik+repack=PYTHON [--isa avx2] [--precision exact] [--models FOLDER] [--json] \\
        [--only qwen2] [--sequences 8,32]

It measures prefill of 512 tokens, decode with an empty context and after 2048 tokens, and 8 and 32
sequences in one step (`--sequences ""`: none). Decode after 2048 tokens is left out for other
formats of a shape than Q4_K_M, and for models with experts; so are several sequences for the
latter, because texts that say the same would choose the same experts. All engines keep
the model loaded; each round times one after the other, so a slow moment of the machine affects
all. It prints medians, the median of the rounds' ratios to each peer, and the share of the ceiling,
which takes its turn in every round: for decode the bandwidth of a plain read, for prefill the rate
of the 16-bit multiply instruction (8-bit inputs can pass it).

PYTHON is an interpreter with llama-cpp-python or ik-llama-cpp-python, built for the instruction set
to compare (see benchmarks/peer.py). A peer whose name ends in "+repack" repacks its weights.
Synthetic models are written to FOLDER once (about 27 GB in all; models with experts have real
layers, but fewer of them).
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from math import prod
from operator import methodcaller
from pathlib import Path

import numpy as np

import models
from arguments import numbers
from ingot import _native
from ingot.gguf import GgufLoader
from peer import Peer, interpreter, named_interpreter
from stepper import Stepper

SYNTHETIC = (
    ("qwen2-1.5b", "Q4_K_M"),
    ("qwen2-1.5b", "Q8_0"),
    ("qwen2-1.5b", "Q5_K"),
    ("qwen2-1.5b", "Q6_K"),
    ("qwen2-1.5b", "IQ4_XS"),
    ("qwen2-1.5b", "Q4_0"),
    ("qwen2-1.5b", "IQ2_XXS"),
    ("qwen2-1.5b", "IQ3_S"),
    ("phi2-2.7b", "Q4_K_M"),
    ("mixtral-8x7b-6-layers", "Q4_K_M"),
    ("qwen3-30b-a3b-12-layers", "Q4_K_M"),
    ("gpt-oss-20b-10-layers", "MXFP4"),
)
PROMPT, GENERATED, DEPTH, SEQUENCES = 512, 32, 2048, (8, 32)
OURS, CEILING = "Ingot", "ceiling"
READ_BYTES = 1 << 30  # far more than caches hold
Rates = dict[str, list[float]]  # tokens per second of every round, by engine


@dataclass(frozen=True, slots=True)
class Row:
    """One test on one model: tokens per second, and the medians of the rounds' ratios."""

    model: str
    test: str
    ingot: float
    peers: dict[str, float]
    ratios: dict[str, float]
    of_ceiling: float


@dataclass(frozen=True, slots=True)
class Machine:
    """What the machine can do at most, now: other guests of a host take their share of it."""

    threads: int
    memory: "np.ndarray[tuple[int], np.dtype[np.uint8]]"

    def bytes_per_second(self) -> float:
        """A plain read of memory far larger than the caches; the best of 3."""
        best = 0.0
        for _ in range(3):
            started = time.perf_counter()
            _native.read_through(self.memory, self.threads)
            best = max(best, len(self.memory) / (time.perf_counter() - started))
        return best

    def operations_per_second(self) -> float:
        """Multiplications and additions of the prompt kernels' instruction; the best of 3."""

        def run() -> int:
            return _native.multiply_in_registers(2_000_000)

        best = 0.0
        with ThreadPoolExecutor(self.threads) as pool:
            for _ in range(3):
                started = time.perf_counter()
                tasks = [pool.submit(run) for _ in range(self.threads)]
                done = sum(task.result() for task in tasks)
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


@dataclass(frozen=True, slots=True)
class Race:
    """The engines on one model, taking turns."""

    mine: Stepper
    peers: dict[str, Peer]
    rounds: int

    def run(
        self, tokens: int, seconds: Callable[[Stepper | Peer], float], most: Callable[[], float]
    ) -> Rates:
        """The rates after one round to warm up; `most`: those that the machine allows."""
        engines: dict[str, Stepper | Peer] = {OURS: self.mine, **self.peers}
        for engine in engines.values():
            seconds(engine)
        rates: Rates = {name: [] for name in (CEILING, *engines)}
        for _ in range(self.rounds):
            rates[CEILING].append(most())
            for name, engine in engines.items():
                rates[name].append(tokens / seconds(engine))
        return rates


def run(
    path: Path,
    peers: dict[str, Peer],
    options: argparse.Namespace,
    machine: Machine,
    *,
    depths: Sequence[int],
    together: Sequence[int],
) -> list[Row]:
    """A prompt, a generation at some depths, and some numbers of sequences together."""
    threads, rounds = options.threads, options.rounds
    rows = []

    def opened(context: int, sequences: int = 1) -> Race:
        for peer in peers.values():
            peer.open(path, threads=threads, context=context, sequences=sequences)
        mine = Stepper(
            path,
            threads=threads,
            context=context,
            sequences=sequences,
            precision=options.precision,
        )
        return Race(mine, peers, rounds)

    def add(test: str, rates: Rates) -> None:
        def ratio(to: str) -> float:
            return statistics.median(a / b for a, b in zip(rates[OURS], rates[to], strict=True))

        medians = {name: statistics.median(rates[name]) for name in (OURS, *peers)}
        ratios = {name: ratio(name) for name in peers}
        rows.append(Row(path.stem, test, medians.pop(OURS), medians, ratios, ratio(CEILING)))
        print_row(rows[-1])

    operations, size = prompt_operations(path), step_bytes(path)

    def steps(sequences: int = 1) -> float:
        return sequences * machine.bytes_per_second() / size

    race = opened(DEPTH + 3 * GENERATED * (rounds + 2))
    prompt = race.run(
        PROMPT,
        lambda engine: engine.prompt(PROMPT),
        lambda: machine.operations_per_second() / operations,
    )
    add(f"prompt {PROMPT}", prompt)
    for depth in depths:
        decode = methodcaller("generate", GENERATED, depth)
        add(f"generate, depth {depth}", race.run(GENERATED, decode, steps))
    race.mine.close()
    for count in together:
        race = opened(3 * GENERATED * (rounds + 2), count)
        decode = methodcaller("generate", GENERATED, 0, count)
        rates = race.run(GENERATED * count, decode, partial(steps, count))
        add(f"generate, {count} sequences", rates)
        race.mine.close()
    return rows


def candidates(folder: Path) -> Iterator[tuple[str, Callable[[], Path]]]:
    """Names of the models, and how to get each."""
    yield "smollm2", models.smollm2
    yield "gemma", models.gemma
    for shape, mix in SYNTHETIC:
        yield f"{shape}-{mix}", partial(models.synthetic, shape, mix, folder)


def print_row(row: Row) -> None:
    peers = "".join(f"{row.peers[name]:12.1f} {row.ratios[name]:6.2f}x" for name in row.peers)
    print(
        f"{row.model:32} {row.test:22} {row.ingot:9.1f}{peers} {row.of_ceiling:9.0%}",
        flush=True,
        file=sys.stderr,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--peer",
        action="append",
        type=named_interpreter,
        metavar="NAME=PYTHON",
        help="an interpreter with llama.cpp; may be repeated",
    )
    parser.add_argument("--precision", choices=("fast", "exact"), default="fast")
    parser.add_argument("--isa", help="Ingot's instruction set, e.g. avx2 (default: the best)")
    parser.add_argument("--models", type=Path, default=Path("build/models"), metavar="FOLDER")
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument(
        "--sequences",
        type=numbers,
        default=SEQUENCES,
        metavar="N,N",
        help="numbers of sequences that generate together (default: 8,32)",
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        interpreters = dict(options.peer or [("llama.cpp", interpreter(sys.executable))])
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    if options.isa:
        _native.set_isa(options.isa)
    machine = Machine(options.threads, np.ones(READ_BYTES, np.uint8))
    print(
        f"{options.threads} threads, {_native.active_isa()}, {options.precision}, a plain read: "
        f"{machine.bytes_per_second() / 1e9:.1f} GB/s, multiplying alone: "
        f"{machine.operations_per_second() / 1e12:.2f} TFLOP/s\n"
        f"{'model':32} {'test':22} {'Ingot t/s':>9}"
        + "".join(f"{name:>12} {'ratio':>7}" for name in interpreters)
        + f"{'of ceiling':>11}",
        file=sys.stderr,
    )
    rows = []
    with ExitStack() as stack:
        peers = {
            name: stack.enter_context(Peer(python, repack=name.endswith("+repack")))
            for name, python in interpreters.items()
        }
        for name, path in candidates(options.models):
            if options.only in name:
                has_experts = "-layers-" in name
                other_format = name.startswith("qwen2") and "Q4_K_M" not in name
                depths = (0,) if other_format or has_experts else (0, DEPTH)
                together = () if has_experts else options.sequences
                rows += run(path(), peers, options, machine, depths=depths, together=together)
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
