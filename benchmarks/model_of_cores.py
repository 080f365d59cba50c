"""A model of how speed grows with cores: fitted to curves of a small machine, asked about a larger.

    python benchmarks/bench_sequences.py --threads 1,2,4,8,16 --json curves.json qwen2-1.5b
    python benchmarks/model_of_cores.py curves.json [--cores 64] [--sockets 2] [--socket-read 250]

A step of `n` threads takes

    max(bytes / read(n), work / n) * rounding(n)  +  operations * barrier * (n - 1)

    read(n)      what n threads read: n times what one reads, at most what the sockets that they
                 are on read together; times the share of it that the kernels reach
    work         the seconds of one thread that computes and never waits for memory: one number for
                 each test (a number of sequences, or the prompt)
    rounding(n)  pieces of a matrix are not divided: the last round of them leaves threads idle
    barrier      all threads add to one counter after every operation, one after the other

One thread's read and a socket's come from the curve's own plain reads; the share, the work of each
test and the barrier are fitted, to the logarithms of the times. Work that memory hides at every
number of threads is taken to be as much as it can be. What the model leaves out:
frequencies that fall with busy cores, caches that grow with them, attention, and memory of a far
socket (each is taken to read its own). If the plain read still grew with the last threads, a
socket reads more than the model knows: --socket-read (GB/s) says it. Barriers are small on few
cores and large on many, so the noise of a curve grows most there.
"""

import argparse
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

OURS = "Ingot"
# Rows of the smallest pieces (native/executor/pieces.h), up to 8 columns, for more, and in prompts;
# these are divided by columns, too.
_FEW, _FEW_ROWS, _MORE_ROWS = 8, 16, 48
_PROMPT_ROWS, _PROMPT_COLUMNS = 64, 64
_SMALLEST_STEP = 1e-4  # of the search, in logarithms


@dataclass(frozen=True, slots=True)
class Test:
    """A step that was timed: so many sequences together, or (0) a prompt."""

    sequences: int
    tokens: int

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"{self.sequences} sequences" if self.sequences else f"prompt {self.tokens}"


@dataclass(frozen=True, slots=True)
class Measured:
    """One point of a curve."""

    test: Test
    threads: int
    seconds: float  # of a step


@dataclass(frozen=True, slots=True)
class Machine:
    """Bytes per second that one thread reads, and a socket; cores of a socket."""

    thread_read: float
    socket_read: float
    cores: int

    def read(self, threads: int) -> float:
        """What threads read that fill one socket after the other."""
        full, rest = divmod(threads, self.cores)
        return full * min(self.cores * self.thread_read, self.socket_read) + min(
            rest * self.thread_read, self.socket_read
        )


@dataclass(frozen=True, slots=True)
class Network:
    """What a step of a model reads, and what it waits for."""

    bytes: float
    rows: Mapping[int, float]  # of the bytes, those of matrices with so many rows
    operations: int

    def rounding(self, test: Test, threads: int) -> float:
        """How much longer a step takes because the last round of pieces is not full."""
        total = sum(self.rows.values())
        return (
            sum(
                share * threads * math.ceil(count / threads) / count
                for rows, share in self.rows.items()
                if (count := pieces(rows, test))
            )
            / total
        )


def pieces(rows: int, test: Test) -> int:
    """The most pieces that a matrix is divided into."""
    if not test.sequences:
        return math.ceil(rows / _PROMPT_ROWS) * math.ceil(test.tokens / _PROMPT_COLUMNS)
    return math.ceil(rows / (_FEW_ROWS if test.sequences <= _FEW else _MORE_ROWS))


@dataclass(frozen=True, slots=True)
class CoreModel:
    """The fitted numbers."""

    machine: Machine
    network: Network
    read_share: float  # of a plain read, that the kernels reach
    barrier: float  # seconds of a thread after an operation
    work: Mapping[Test, float]  # seconds of one thread

    def parts(self, test: Test, threads: int) -> dict[str, float]:
        """The seconds of a step, and where they go."""
        reading = self.network.bytes / (self.read_share * self.machine.read(threads))
        computing = self.work[test] / threads
        busy = max(reading, computing)
        return {
            "memory" if reading >= computing else "arithmetic": busy,
            "rounding": busy * (self.network.rounding(test, threads) - 1),
            "barriers": self.network.operations * self.barrier * (threads - 1),
        }

    def seconds(self, test: Test, threads: int) -> float:
        """The seconds of a step."""
        return sum(self.parts(test, threads).values())

    def on(self, machine: Machine) -> "CoreModel":
        """The same model on another machine."""
        return replace(self, machine=machine)

    @classmethod
    def fit(cls, points: Sequence[Measured], machine: Machine, network: Network) -> "CoreModel":
        """The numbers with the least squares of errors in logarithms."""
        tests = list(dict.fromkeys(point.test for point in points))

        def model(logarithms: Sequence[float]) -> CoreModel:
            share, barrier, *work = map(math.exp, logarithms)
            found = dict(zip(tests, work, strict=True))
            return cls(machine, network, min(share, 1.0), barrier, found)

        def error(logarithms: Sequence[float]) -> float:
            candidate = model(logarithms)
            return sum(
                math.log(candidate.seconds(point.test, point.threads) / point.seconds) ** 2
                for point in points
            )

        # One thread's time is all arithmetic, to begin with; a barrier takes a microsecond.
        alone = [
            min(point.seconds * point.threads for point in points if point.test == test)
            for test in tests
        ]
        return model(descend(error, [math.log(x) for x in (0.9, 1e-6, *alone)]))


def descend(error: Callable[[Sequence[float]], float], start: Sequence[float]) -> list[float]:
    """The point with the least error near another one, by steps along each axis that shrink."""
    best, least, step = list(start), error(start), 1.0
    while step > _SMALLEST_STEP:
        improved = False
        for axis in range(len(best)):
            for direction in (step, -step):
                candidate = [*best]
                candidate[axis] += direction
                if (found := error(candidate)) < least:
                    best, least, improved = candidate, found, True
                    break
        if not improved:
            step /= 2
    return best


def points_of(curve: Mapping[str, Any]) -> list[Measured]:
    """The points of a curve that `bench_sequences.py` wrote."""
    return [
        Measured(
            Test(point["sequences"], point["tokens"]),
            point["threads"],
            point["tokens"] / point["rates"][OURS],
        )
        for point in curve["points"]
    ]


def machine_of(curve: Mapping[str, Any], cores: int | None) -> Machine:
    """What a curve says of its machine, with so many cores in a socket (None: all of them)."""
    reads: dict[int, float] = {}
    for point in curve["points"]:
        reads[point["threads"]] = max(reads.get(point["threads"], 0.0), point["read"])
    fewest, most = min(reads), max(reads)
    cores = cores or most
    of_socket = [read for threads, read in reads.items() if threads <= cores]
    return Machine(reads[fewest] / fewest, max(of_socket or [reads[fewest]]), cores)


def network_of(curve: Mapping[str, Any]) -> Network:
    """The network of a curve."""
    rows = {int(rows): share for rows, share in curve["rows"].items()}
    return Network(curve["bytes"], rows, curve["operations"])


def show(curve: Mapping[str, Any], options: argparse.Namespace) -> None:
    """Print the fit beside the measurements, and the prediction."""
    points, machine = points_of(curve), machine_of(curve, options.socket_cores)
    model = CoreModel.fit(points, machine, network_of(curve))
    print(
        f"{curve['model']}, {curve['isa']}: one thread reads {machine.thread_read / 1e9:.1f} GB/s, "
        f"a socket {machine.socket_read / 1e9:.1f}; kernels reach {model.read_share:.0%} of it; a "
        f"barrier takes {model.barrier * 1e6:.2f} us for each thread\n"
        f"{'test':16} threads  measured t/s  model t/s   error"
    )
    for point in points:
        rate = point.test.tokens / model.seconds(point.test, point.threads)
        measured = point.test.tokens / point.seconds
        print(
            f"{point.test.name:16} {point.threads:7} {measured:13.1f} {rate:10.1f} "
            f"{rate / measured - 1:+7.0%}"
        )
    larger = Machine(
        machine.thread_read,
        options.socket_read * 1e9 if options.socket_read else machine.socket_read,
        math.ceil(options.cores / options.sockets),
    )
    told = f"{larger.socket_read / 1e9:.0f} GB/s each"
    print(f"predicted for {options.cores} cores on {options.sockets} socket(s) of {told}")
    for test in model.work:
        parts = model.on(larger).parts(test, options.cores)
        total = sum(parts.values())
        shares = ", ".join(f"{name} {part / total:.0%}" for name, part in parts.items())
        print(f"{test.name:16} {options.cores:7} {'':13} {test.tokens / total:10.1f}   {shares}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("curves", type=Path, help="of bench_sequences.py --json")
    parser.add_argument("--cores", type=int, default=64, help="to predict (default: 64)")
    parser.add_argument("--sockets", type=int, default=1, help="that they are on (default: 1)")
    parser.add_argument("--socket-read", type=float, metavar="GB/S", help="of that machine")
    parser.add_argument(
        "--socket-cores", type=int, metavar="N", help="of the measured machine (default: all)"
    )
    options = parser.parse_args()
    for curve in json.loads(options.curves.read_text()):
        show(curve, options)


if __name__ == "__main__":
    main()
