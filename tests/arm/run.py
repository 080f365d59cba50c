"""Run tests in the emulator, on CPUs of every tier.

Usage: run.py FOLDER    which make_root.sh and `make test-arm` have filled

The installed wheel must answer a prompt. Every CPU must choose its tier and run all tiers up to it:
an instruction that it lacks ends the run. One CPU that has everything runs all tests of kernels;
the others run products, decoding and rows of every format, at odd sizes. A model writes the same
texts on all of them. Two CPUs are emulated at a time.
"""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
ALL = [
    "tests/kernels",
    "tests/ops/test_cpu.py",
    "tests/golden/test_golden.py::test_writes_the_same_texts",
]
SOME = [
    "tests/kernels/test_linear.py::test_same_operands",
    "tests/kernels/test_decode.py",
    "tests/kernels/test_rowwise.py",
    "tests/golden/test_golden.py::test_writes_the_same_texts",
]
CPUS = {
    "max": ("i8mm", ALL),  # takes longest
    "cortex-a53": ("neon", SOME),  # ARMv8.0
    "neoverse-n1": ("dotprod", SOME),  # ARMv8.2
}
CHOICE = "from ingot import _native; print(_native.active_isa())"
PROMPT = ["-m", "ingot", "run", "--temperature", "0", "-n", "8", "Name three colours."]
TESTS = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not gemma"]


def main() -> None:
    """Run all CPUs, then say which failed."""
    folder = Path(sys.argv[1]).resolve()
    print(f"the wheel says {_said(folder, 'max', *PROMPT)!r}", flush=True)
    with ThreadPoolExecutor(2) as pool:
        done = dict(zip(CPUS, pool.map(lambda cpu: _passes(folder, cpu), CPUS), strict=True))
    if failed := [cpu for cpu, passed in done.items() if not passed]:
        sys.exit(f"tests failed on {', '.join(failed)}")


def _passes(folder: Path, cpu: str) -> bool:
    """Run the tests of a CPU; prints what pytest said when they have ended."""
    tier, tests = CPUS[cpu]
    if (chosen := _said(folder, cpu, "-c", CHOICE)) != tier:
        print(f"{cpu} chose the tier {chosen}, not {tier}", flush=True)
        return False
    began = time.monotonic()
    done = _run(folder, cpu, *TESTS, *tests, cwd=ROOT)
    minutes = (time.monotonic() - began) / 60
    print(f"{done.stdout}{done.stderr}{cpu}: {tier}, {minutes:.1f} minutes", flush=True)
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
