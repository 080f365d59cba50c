"""Speed of the matrix kernels on one thread: GB/s of weights, GFLOP/s of prefill.

Decode counts the bytes of quantized weights it reads, from the CPU cache and from memory, for 1 to
16 columns. Prefill counts two operations per product. Each number is the best of many runs, because
a busy machine can only make them worse.

    python benchmarks/bench_linear.py [--isa avx2] [--precision exact] [--repacked] [--types Q4_K]

`--repacked` reads copies with interleaved rows, where a type has them, as models do by default.
"""

import argparse
import mmap
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ingot import _native
from ingot.backends.cpu.handover import native_precision
from ingot.backends.precision import Precision

WIDTH = 2048
CACHED_ROWS = 64
MEMORY_BYTES = 256 << 20  # more than any cache of the machines we know
GENERATION_COLUMNS = [1, 2, 4, 8, 16]
PROMPT_COLUMNS = [64, 512]
PROMPT_ROWS = 192
TYPES = {name: (number, weights, size) for name, number, weights, size in _native.tensor_types()}


def aligned(shape: tuple[int, int]) -> NDArray[np.uint8]:
    room = np.zeros(shape[0] * shape[1] + 63, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + shape[0] * shape[1]].reshape(shape)


def best_seconds(run: Callable[[], None], budget: float) -> float:
    best, begin = float("inf"), time.perf_counter()
    while time.perf_counter() - begin < budget:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


class Bench:
    """One type of weight, and the time its kernels take."""

    def __init__(self, name: str, precision: str, seconds: float, *, repacked: bool) -> None:
        self.name = name
        self.precision = native_precision(Precision(precision))
        self.number, self.block_weights, self.block_bytes = TYPES[name]
        self.row_bytes = WIDTH // self.block_weights * self.block_bytes
        self.seconds = seconds
        self.together = _native.interleaved_rows(self.number, self.precision) if repacked else 0
        self.rng = np.random.default_rng(0)

    def weight(self, rows: int) -> NDArray[np.uint8]:
        """Random bytes that decode to no subnormal number: those take a hundred times longer."""
        some = min(rows, 4096)
        floats = self.rng.standard_normal((some, WIDTH)).astype(np.float32)
        if self.name == "F32":
            pattern = floats.view(np.uint8)
        elif self.name == "F16":
            pattern = floats.astype(np.float16).view(np.uint8)
        elif self.name == "BF16":
            pattern = (floats.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        else:  # below 0x3c every half-precision factor is a small number
            pattern = self.rng.integers(1, 0x3C, (some, self.row_bytes), dtype=np.uint8)
        if self.name == "MXFP4":  # a block's first byte is the exponent of its scale
            pattern.reshape(some, -1, self.block_bytes)[:, :, 0] = 120
        weight = np.tile(pattern, (-(-rows // some), 1))[:rows]
        return self.interleaved(weight) if self.together else weight

    def interleaved(self, weight: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """A copy of as many rows as can be interleaved, in huge pages where the system has them."""
        rows = len(weight) // self.together * self.together
        row_bytes = _native.interleaved_row_bytes(self.number, WIDTH, self.precision)
        room = mmap.mmap(-1, rows * row_bytes)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            room.madvise(mmap.MADV_HUGEPAGE)
        copy = np.frombuffer(room, np.uint8).reshape(rows, row_bytes)
        _native.interleave(self.number, weight[:rows], WIDTH, copy, self.precision)
        return copy

    def time(self, phase: str, weight: NDArray[np.uint8], columns: int) -> float:
        values = self.rng.standard_normal((columns, WIDTH)).astype(np.float32)
        precision = self.precision
        quantized = aligned((-(-columns // 16) * 16, _native.quantized_bytes(WIDTH, precision)))
        _native.quantize_inputs(self.number, phase, values, quantized, precision)
        out = np.empty((columns, len(weight)), np.float32)
        return best_seconds(
            lambda: _native.linear(
                self.number,
                phase,
                weight,
                values,
                quantized,
                0,
                len(weight),
                out,
                precision,
                interleaved=self.together > 0,
            ),
            self.seconds,
        )

    def generation(self, rows: int, columns: int) -> float:
        """GB/s of weights."""
        weight = self.weight(rows)
        return weight.nbytes / self.time("generation", weight, columns) / 1e9

    def prompt(self, columns: int) -> float:
        """GFLOP/s."""
        weight = self.weight(PROMPT_ROWS)
        return 2 * PROMPT_ROWS * WIDTH * columns / self.time("prompt", weight, columns) / 1e9


def main() -> None:
    kernels = ["F32", "F16", "BF16", *(name for name in TYPES if TYPES[name][1] > 1)]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa", nargs="*", default=_native.instruction_sets()[1:])
    parser.add_argument("--precision", choices=list(Precision), default=Precision.FAST)
    parser.add_argument("--repacked", action="store_true", help="read interleaved rows")
    parser.add_argument("--types", nargs="*", default=kernels)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each number")
    arguments = parser.parse_args()
    heads = [f"c{c}" for c in GENERATION_COLUMNS]
    heads += [f"m{c}" for c in GENERATION_COLUMNS] + [f"p{c}" for c in PROMPT_COLUMNS]
    for isa in arguments.isa:
        _native.set_isa(isa)
        print(
            f"{isa}, {arguments.precision}; (c) from the cache and (m) from memory in GB/s, ",
            end="",
        )
        print("(p) prompts in GFLOP/s")
        print(f"{'':8}" + "".join(f"{head:>7}" for head in heads))
        for name in arguments.types:
            bench = Bench(name, arguments.precision, arguments.seconds, repacked=arguments.repacked)
            print(f"{name:8}", end="", flush=True)
            for rows in [CACHED_ROWS, MEMORY_BYTES // bench.row_bytes]:
                for columns in GENERATION_COLUMNS:
                    print(f"{bench.generation(rows, columns):7.2f}", end="", flush=True)
            for columns in PROMPT_COLUMNS:
                print(f"{bench.prompt(columns):7.0f}", end="", flush=True)
            print()


if __name__ == "__main__":
    main()
