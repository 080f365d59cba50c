"""Run tests in the emulator, on CPUs of every tier.

Usage: run.py FOLDER    which make_root.sh and `make test-arm` have filled

Every CPU must choose its tier and run all tiers up to it: an instruction that it lacks ends the
run. One CPU that has everything runs all tests of kernels; the others run products, decoding and
rows of every format, at odd sizes. A model writes the same texts on all of them.
"""

import os
import subprocess
import sys
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
    "cortex-a53": ("neon", SOME),  # ARMv8.0
    "neoverse-n1": ("dotprod", SOME),  # ARMv8.2
    "max": ("i8mm", ALL),
}
CHOICE = "from ingot import _native; print(_native.active_isa())"


def main() -> None:
    """Stop at the first CPU that fails."""
    folder = Path(sys.argv[1]).resolve()
    python = str(folder / "python")
    places = [folder / "site", folder / "packages", ROOT / "tests"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))}
    for cpu, (tier, tests) in CPUS.items():
        environment["QEMU_CPU"] = cpu
        run = subprocess.run(
            [python, "-c", CHOICE], env=environment, check=True, capture_output=True, text=True
        )
        if run.stdout.strip() != tier:
            sys.exit(f"{cpu} chose the tier {run.stdout.strip()}, not {tier}")
        print(f"{cpu}: {tier}", flush=True)
        command = [
            python,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-k",
            "not gemma",
            *tests,
        ]
        if code := subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode:
            sys.exit(code)


if __name__ == "__main__":
    main()
