"""Count the instructions that a matrix product takes on ARM, beside llama.cpp.

An emulator cannot time anything, but it can count. After `make test-arm` and, as root,
`apt-get install qemu-user` (the emulator that takes plugins; the static one does not):

    python benchmarks/bench_arm.py               # of Ingot
    python benchmarks/bench_arm.py SDIST         # and of llama.cpp, from llama-cpp-python's sources

Prints a table: products x tiers x formats, per weight and column. A count is the difference of two
runs with different numbers of products, divided by rows x width x columns of the products between
them. llama.cpp rounds its inputs within a product, Ingot before it, once for all matrices that read
them: so llama.cpp's count is the difference of two matrices, one with twice the rows.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from arm_multiply import ROWS, WIDTH

HERE = Path(__file__).parent
ARM = HERE.parent / "build/arm"
FORMATS = ["Q4_K", "Q8_0", "Q4_0", "Q6_K"]
TIERS = ["neon", "dotprod", "i8mm"]
# Name, phase, columns, whether of an interleaved copy, and how many products.
CASES = [
    ("generation, as the file has it", "generation", 1, 0, 8),
    ("generation, interleaved", "generation", 1, 1, 8),
    ("8 sequences, interleaved", "generation", 8, 1, 4),
    ("prompt of 64", "prompt", 64, 0, 2),
    ("prompt of 64, interleaved", "prompt", 64, 1, 2),
]
# What llama.cpp is compiled for: it chooses when it is compiled.
PEERS = {"neon": "armv8-a", "dotprod": "armv8.2-a+dotprod", "i8mm": "armv8.2-a+dotprod+i8mm"}


def make_plugin() -> Path:
    plugin = ARM / "libcount.so"
    subprocess.run(
        ["gcc", "-O2", "-shared", "-fPIC", "-o", plugin, HERE / "arm_count.c"], check=True
    )
    return plugin


def make_peer(sdist: Path, tier: str) -> Path:
    """llama.cpp's CPU backend for a tier, and the program that multiplies with it."""
    folder = ARM / "llama.cpp"
    if not folder.exists():
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
    (source,) = folder.glob("*/vendor/llama.cpp")
    objects = ARM / f"llama.cpp-{tier}"
    settings = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": "aarch64",
        "CMAKE_C_COMPILER": "aarch64-linux-gnu-gcc",
        "CMAKE_CXX_COMPILER": "aarch64-linux-gnu-g++",
        "BUILD_SHARED_LIBS": "OFF",
        "GGML_NATIVE": "OFF",
        "GGML_OPENMP": "OFF",
        "GGML_LLAMAFILE": "ON",
        "GGML_CPU_ARM_ARCH": PEERS[tier],
    }
    settings |= {f"LLAMA_BUILD_{part}": "OFF" for part in ("COMMON", "TESTS", "TOOLS", "APP")}
    command = ["cmake", "-S", str(source), "-B", str(objects)]
    command += [f"-D{name}={value}" for name, value in settings.items()]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    command = ["cmake", "--build", str(objects), "-j2", "--target", "ggml"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    program = objects / "multiply"
    command = ["aarch64-linux-gnu-g++", "-std=c++20", "-O2", "-static", "-o", str(program)]
    command += [f"-I{source / 'ggml/include'}", str(HERE / "arm_llama_cpp.cpp")]
    command += ["-Wl,--start-group"]
    command += [str(library) for library in objects.glob("**/libggml*.a")]
    command += ["-Wl,--end-group", "-lpthread", "-ldl"]
    subprocess.run(command, check=True)
    return program


def executed(plugin: Path, *arguments: str) -> int | None:
    """The instructions that a program executes in the emulator; None if it has no such product."""
    root = ARM / "root"
    places = [str(ARM / "site"), str(ARM / "packages")]
    environment = {
        "PYTHONHOME": str(root / "usr"),
        "PYTHONPATH": os.pathsep.join(places),
        "PYTHONHASHSEED": "0",
        "OPENBLAS_NUM_THREADS": "1",
        "PATH": os.environ["PATH"],
    }
    command = ["qemu-aarch64", "-cpu", "max", "-L", str(root), "-plugin", str(plugin)]
    command += ["-d", "plugin", *arguments]
    run = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if run.returncode == 3:
        return None
    if run.returncode:
        sys.exit(run.stderr)
    return int(re.findall(r"executed (\d+)", run.stderr)[-1])


def between(plugin: Path, n: int, *command: str) -> int | None:
    """The instructions of n products; the last argument of a command is a number of products."""
    many, one = (executed(plugin, *command, str(count)) for count in (1 + n, 1))
    return None if many is None or one is None else many - one


def of_ingot(
    plugin: Path, tier: str, name: str, phase: str, columns: int, copied: int, n: int
) -> str:
    (python,) = (ARM / "root/usr/bin").glob("python3.??")
    worker = [str(python), str(HERE / "arm_multiply.py"), tier, name, phase]
    count = between(plugin, n, *worker, str(columns), str(copied))
    return "" if count is None else f"{count / (n * ROWS * WIDTH * columns):.3f}"


def of_peer(plugin: Path, program: Path, name: str, columns: int, copied: int, n: int) -> str:
    def count(rows: int) -> int | None:
        sizes = [str(number) for number in (rows, WIDTH, columns, copied)]
        return between(plugin, n, str(program), name, *sizes)

    twice, once = count(2 * ROWS), count(ROWS)
    if twice is None or once is None:
        return "none"
    return f"{(twice - once) / (n * ROWS * WIDTH * columns):.3f}"


def main() -> None:
    for program in ("qemu-aarch64", "gcc"):
        if not shutil.which(program):
            sys.exit(f"{program} is not here (Debian: apt-get install qemu-user gcc)")
    if not (ARM / ".built").exists():
        sys.exit("nothing is built for ARM: make test-arm")
    plugin = make_plugin()
    peers = {tier: make_peer(Path(sys.argv[1]), tier) for tier in TIERS} if sys.argv[1:] else {}
    of_ingot(plugin, TIERS[0], FORMATS[0], "generation", 1, 0, 1)  # Python writes its caches
    print(f"| product | tier | engine | {' | '.join(FORMATS)} |")
    print(f"|---|---|---{'|--:' * len(FORMATS)}|")
    for label, phase, columns, copied, n in CASES:
        for tier in TIERS:
            counts = [of_ingot(plugin, tier, name, phase, columns, copied, n) for name in FORMATS]
            print(f"| {label} | `{tier}` | Ingot | {' | '.join(counts)} |", flush=True)
            if tier in peers:
                counts = [
                    of_peer(plugin, peers[tier], name, columns, copied, n) for name in FORMATS
                ]
                print(f"| {label} | `{tier}` | llama.cpp | {' | '.join(counts)} |", flush=True)


if __name__ == "__main__":
    main()
