"""Tokens per second with each type of KV cache, in decode and in a prompt, at some depths.

    python benchmarks/bench_kv_types.py qwen2-1.5b [--mix Q4_K_M] [--depths 0,2048,4096] \\
        [--threads 2] [--rounds 5] [--folder /tmp]
    python benchmarks/bench_kv_types.py smollm2 [--depths ...]

One model is open for each type, and they take turns in every round, so a slow moment of the machine
affects all. Rates are medians of the rounds, ratios to f16 medians of the rounds' ratios. What lies
in the cache before a test are zeros, which take as long as any other values. Weights stay in the
mapped file (`weights="map"`), which all models share: copies for each would not fit everywhere.
"""

import argparse
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import models
from arguments import numbers
from stepper import Stepper

TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0")
ANCHOR = "f16"
DEPTHS = (0, 2048, 4096)
PROMPT, GENERATED = 512, 16
SMOLLM2 = "smollm2"


@dataclass(frozen=True, slots=True)
class Row:
    """One test at one depth: tokens per second by type, and ratios to f16."""

    test: str
    depth: int
    rates: Mapping[str, float]
    ratios: Mapping[str, float]


def race(path: Path, threads: int, depths: Sequence[int], rounds: int) -> list[Row]:
    """All tests; each round times all types one after the other."""
    context = max(depths) + PROMPT + GENERATED
    steppers = {
        kv_type: Stepper(path, threads=threads, context=context, kv_type=kv_type, weights="map")
        for kv_type in TYPES
    }
    rows = []
    for depth in depths:
        for test, tokens in (("decode", GENERATED), ("prompt", PROMPT)):
            times: dict[str, list[float]] = {kv_type: [] for kv_type in TYPES}
            for number in range(rounds + 1):
                for kv_type, stepper in steppers.items():
                    run = stepper.generate_at if test == "decode" else stepper.prompt_at
                    seconds = run(tokens, depth)
                    if number:  # the first round warms up
                        times[kv_type].append(seconds)
            rates = {name: tokens / statistics.median(each) for name, each in times.items()}
            ratios = {
                name: statistics.median(
                    anchor / own for anchor, own in zip(times[ANCHOR], each, strict=True)
                )
                for name, each in times.items()
            }
            rows.append(Row(test, depth, rates, ratios))
            show(rows[-1])
    for stepper in steppers.values():
        stepper.close()
    return rows


def show(row: Row) -> None:
    """Print a line."""
    cells = "".join(f"{row.rates[name]:9.1f}{row.ratios[name]:6.2f}x" for name in TYPES)
    print(f"{row.test:8}{row.depth:6}{cells}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("shape", help=f"of benchmarks/synthetic.py, or {SMOLLM2}: the real file")
    parser.add_argument("--mix", default="Q4_K_M")
    parser.add_argument("--depths", type=partial(numbers, least=0), default=DEPTHS, metavar="N,N")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("/tmp"))
    options = parser.parse_args()
    if options.shape == SMOLLM2:
        path = models.smollm2()
    else:
        path = models.synthetic(options.shape, options.mix, options.folder)
    heads = "".join(f"{name:>9}{'':7}" for name in TYPES)
    print(f"{path.stem}, {options.threads} threads\n{'test':8}{'depth':>6}{heads}")
    race(path, options.threads, options.depths, options.rounds)


if __name__ == "__main__":
    main()
