"""How far the decode speed that `ingot doctor` predicts is from the one it measures.

    python benchmarks/bench_doctor.py [--rounds 5] [--json] [MODEL ...]
    python benchmarks/bench_doctor.py --types Q4_K_M IQ4_XS --shape qwen2-1.5b

Models are files or names. `--types` adds files with random weights in a real shape, written into
`--models` on first use. With neither, it takes SmolLM2 135M, Gemma 3 270M and seven types.

In every round, a fresh `ingot doctor -m MODEL --again` calibrates and measures each model, so that
both numbers of a ratio are seconds apart on a machine that others use, too. The ratio of a model is
the median of its rounds. The exit status is 1 if one is outside 0.75 to 1.25, or has no prediction.
Calibrations go into a temporary folder: those of the user stay.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from ingot import store
from models import gemma, smollm2, synthetic
from synthetic import MODELS

LEAST, MOST = 0.75, 1.25
SHAPE = "qwen2-1.5b"
TYPES = ("IQ2_XXS", "IQ4_XS", "Q4_0", "Q4_K_M", "Q5_K", "Q6_K", "Q8_0")


@dataclass(frozen=True, slots=True)
class Speeds:
    """What one run of the command said, in tokens per second."""

    predicted: float | None  # None: a type has no kernel to measure
    measured: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One model: medians of its rounds."""

    model: str
    predicted: float | None
    measured: float
    ratios: tuple[float, ...]

    @classmethod
    def of(cls, model: str, rounds: Sequence[Speeds]) -> "Comparison":
        """What the rounds of a model say."""
        pairs = [(s.predicted, s.measured) for s in rounds if s.predicted is not None]
        return cls(
            model,
            median(predicted for predicted, _ in pairs) if pairs else None,
            median(speeds.measured for speeds in rounds),
            tuple(predicted / measured for predicted, measured in pairs),
        )

    @property
    def ratio(self) -> float | None:
        """The prediction divided by the measurement; not that of the medians."""
        return median(self.ratios) if self.ratios else None

    @property
    def is_near(self) -> bool:
        """Whether the prediction is within a quarter of the measurement."""
        return self.ratio is not None and LEAST <= self.ratio <= MOST


def ask_doctor(model: Path) -> Speeds:
    """What a fresh process predicts and measures."""
    with TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, "-m", "ingot", "doctor", "-m", str(model), "--again", "--json"],
            env=os.environ | {"INGOT_CACHE": cache},
            stdout=subprocess.PIPE,
            check=True,
        )
    found: dict[str, Any] = json.loads(done.stdout)["model"]
    return Speeds(found["predicted"], found["measured"])


def compare(
    models: Iterable[Path], rounds: int, ask: Callable[[Path], Speeds] = ask_doctor
) -> list[Comparison]:
    """All models, one after the other in each round."""
    paths = list(models)
    asked = [[ask(path) for path in paths] for _ in range(rounds)]
    return [
        Comparison.of(path.stem, [found[number] for found in asked])
        for number, path in enumerate(paths)
    ]


def row(found: Comparison) -> str:
    """A line of the table."""
    if found.predicted is None or found.ratio is None:
        return f"| {found.model} | - | {found.measured:.1f} | no prediction | |"
    spread = f"{min(found.ratios):.2f} to {max(found.ratios):.2f}"
    near = "" if found.is_near else " (outside)"
    speeds = f"{found.predicted:.1f} | {found.measured:.1f}"
    return f"| {found.model} | {speeds} | {found.ratio:.2f}{near} | {spread} |"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("named", nargs="*", metavar="MODEL")
    parser.add_argument("--types", nargs="*", default=[], metavar="TYPE")
    parser.add_argument("--shape", choices=MODELS, default=SHAPE)
    parser.add_argument("--models", type=Path, default=Path("build/models"), metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    usual = not options.named and not options.types
    paths = [smollm2(), gemma()] if usual else [store.resolve(name) for name in options.named]
    for mix in TYPES if usual else options.types:
        paths.append(synthetic(options.shape, mix, options.models))
    compared = compare(paths, options.rounds)
    if options.json:
        print(json.dumps([asdict(each) | {"ratio": each.ratio} for each in compared], indent=2))
    else:
        print("| model | predicted t/s | measured t/s | predicted / measured | of the rounds |")
        print("|---|---|---|---|---|")
        for each in compared:
            print(row(each))
    sys.exit(not all(each.is_near for each in compared))


if __name__ == "__main__":
    main()
