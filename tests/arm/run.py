"""Run tests in the emulator, on CPUs of every tier.

Usage: run.py FOLDER    which make_root.sh and `make test-arm` have filled

The installed wheel must answer a prompt. Every CPU must choose its tier: an instruction that it
lacks ends the run. One CPU that has everything runs all tests of kernels on all tiers; the others
run products, decoding and rows of every format, at odd sizes, on the tiers that no older CPU has
run. A model writes the same texts on all of them. Two runs are made at a time.
"""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIERS = {"cortex-a53": "neon", "neoverse-n1": "dotprod", "max": "i8mm"}  # ARMv8.0, ARMv8.2, all
LINEAR = "tests/kernels/test_linear.py"
GOLDEN = "tests/golden/test_golden.py::test_writes_the_same_texts"
SOME = [
    f"{LINEAR}::test_same_operands",
    "tests/kernels/test_decode.py",
    "tests/kernels/test_rowwise.py",
    GOLDEN,
]


@dataclass(frozen=True)
class Run:
    """Some tests on a CPU."""

    cpu: str
    tests: list[str]
    only: str = "not gemma"  # as pytest's -k has it


RUNS = [  # the longest first
    Run("max", [LINEAR]),
    Run("max", ["tests/ops/test_cpu.py", GOLDEN]),
    Run("max", ["tests/kernels", f"--ignore={LINEAR}"]),
    Run("cortex-a53", SOME),
    Run("neoverse-n1", SOME, "not gemma and dotprod"),
]
CHOICE = "from ingot import _native; print(_native.active_isa())"
PROMPT = ["-m", "ingot", "run", "--temperature", "0", "-n", "8", "Name three colours."]
TESTS = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]


def main() -> None:
    """Make all runs, then say which failed."""
    folder = Path(sys.argv[1]).resolve()
    print(f"the wheel says {_said(folder, 'max', *PROMPT)!r}", flush=True)
    for cpu, tier in TIERS.items():
        if (chosen := _said(folder, cpu, "-c", CHOICE)) != tier:
            sys.exit(f"{cpu} chose the tier {chosen}, not {tier}")
    with ThreadPoolExecutor(2) as pool:
        passed = list(pool.map(lambda run: _passes(folder, run), RUNS))
    used = os.times()
    print(f"{(used.children_user + used.children_system) / 60:.0f} minutes of CPU time in all")
    if not all(passed):
        failed = {run.cpu for run, well in zip(RUNS, passed, strict=True) if not well}
        sys.exit(f"tests failed on {', '.join(sorted(failed))}")


def _passes(folder: Path, run: Run) -> bool:
    """Run the tests; prints what pytest said when they have ended."""
    began = time.monotonic()
    done = _run(folder, run.cpu, *TESTS, "-k", run.only, *run.tests, cwd=ROOT)
    minutes = (time.monotonic() - began) / 60
    print(f"{done.stdout}{done.stderr}{run.cpu}: {minutes:.1f} minutes", flush=True)
    return done.returncode == 0


def _said(folder: Path, cpu: str, *arguments: str) -> str:
    done = _run(folder, cpu, *arguments, cwd=folder)
    if done.returncode != 0 or not done.stdout.strip():
        sys.exit(f"{cpu}: {' '.join(arguments)} failed: {done.stderr}")
    return done.stdout.strip()


def _run(folder: Path, cpu: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    places = [folder / "site", folder / "packages", ROOT / "tests"]
    environment = {
        **os.environ,
        "QEMU_CPU": cpu,
        "PYTHONPATH": os.pathsep.join(map(str, places)),
    }
    return subprocess.run(
        [str(folder / "python"), *arguments],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    main()
