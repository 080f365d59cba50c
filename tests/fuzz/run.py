"""Feeds spoiled files to the parser and checks what comes back.

    python -m fuzz.run --count 120000 [--seed 1] [--first N] [--sanitized]

Every file is either rejected with a `GgufError` that names a field and a byte inside the
file, or opens, and then all of its values and tensors can be read. The native scan sees
each file in an allocation of exactly its size and again cut short, as plain reads give it;
the loader sees it on disk. `--sanitized` insists on the build that `make fuzz` makes. The
file at hand is `build/fuzz/last.gguf`, also after a crash; `--first` starts at its number.
"""

import argparse
import faulthandler
import resource
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from fuzz.mutate import make_file
from ingot import _native
from ingot.errors import GgufError
from ingot.gguf import GgufLoader, StringArray

MOST_GROWTH_MIB = 96  # of memory, whatever the files claim; none is larger than 64 KiB
HANG_SECONDS = 600  # for a thousand files, which take about one


@dataclass(frozen=True)
class Rejection:
    """What a `GgufError` says, less the path."""

    field: str
    offset: int | None
    reason: str


def scan(data: bytes, size: int) -> object:
    """The native scan of `data` in a separate allocation, so that reads beyond it are found."""
    exact = np.empty(len(data), np.uint8)
    exact[:] = np.frombuffer(data, np.uint8)
    try:
        return _native.scan_gguf(exact, size, "file")
    except GgufError as error:
        return Rejection(error.field, error.offset, error.reason)


def overwrite(path: Path, data: bytes) -> None:
    """Without emptying the file first: some file systems then wait for the disk."""
    path.touch()
    with path.open("r+b", buffering=0) as file:
        file.write(data)
        file.truncate()


def touch_everything(path: Path) -> None:
    """Read every value and every tensor of a file that was accepted."""
    with GgufLoader(path) as loader:
        for key, value in loader.metadata.items():
            assert key
            if isinstance(value, StringArray):
                assert sum(len(value.raw(i)) for i in range(len(value))) <= path.stat().st_size
                assert len(list(value)) == len(value)
            elif isinstance(value, np.ndarray):
                assert len(value.tolist()) == loader.metadata.entry(key).count
        for tensor in loader.tensors.values():
            view = tensor.data
            assert view.size == tensor.nbytes
            assert 0 <= int(view.astype(np.uint64).sum()) <= 255 * view.size


def check(data: bytes, path: Path, cut: int) -> str:
    """Feed one file in every way; the name of the field it was rejected for, or `accepted`."""
    overwrite(path, data)
    whole = scan(data, len(data))
    part = scan(data[:cut], len(data))
    assert part is None or repr(part) == repr(whole), f"cut at {cut}: {part} instead of {whole}"
    if isinstance(whole, Rejection):
        assert whole.offset is not None, whole
        assert whole.offset <= len(data), whole
    opened: object = None
    try:
        touch_everything(path)
    except GgufError as error:
        opened = Rejection(error.field, error.offset, error.reason)
    if isinstance(whole, Rejection):
        assert opened == whole, f"opening gave {opened} but the scan gave {whole}"
    return opened.field if isinstance(opened, Rejection) else "accepted"


def fuzz(count: int, seed: int, path: Path, first: int = 0) -> Counter[str]:
    """Check files `first` to `first + count`; what became of them."""
    outcomes: Counter[str] = Counter()
    for number in range(first, first + count):
        if number % 1000 == 0:
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        data = make_file(seed, number)
        try:
            outcomes[check(data, path, Random(number).randint(0, len(data)))] += 1
        except BaseException:
            print(f"file {number} of seed {seed} is in {path}", file=sys.stderr)
            raise
    faulthandler.cancel_dump_traceback_later()
    return outcomes


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=120_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--sanitized", action="store_true")
    arguments = parser.parse_args()
    if arguments.sanitized:
        maps = Path("/proc/self/maps").read_text()
        if "libasan" not in maps or "build/sanitized" not in str(_native.__file__):
            sys.exit(f"{_native.__file__} is not the build with sanitizers; use `make fuzz`")
    path = Path("build/fuzz/last.gguf")
    path.parent.mkdir(parents=True, exist_ok=True)
    fuzz(200, arguments.seed, path)  # what is allocated once, is now
    before, start = peak_mib(), time.perf_counter()
    outcomes = fuzz(arguments.count, arguments.seed, path, arguments.first)
    elapsed, growth = time.perf_counter() - start, peak_mib() - before
    accepted = outcomes.pop("accepted", 0)
    print(_native.__file__)
    print(
        f"{arguments.count} files in {elapsed:.0f} s (seed {arguments.seed}): {accepted} accepted"
    )
    for field, number in outcomes.most_common():
        print(f"{number:8d} rejected for {field}")
    print(f"peak memory {peak_mib():.0f} MiB, {growth:.0f} more than at the start")
    if growth > MOST_GROWTH_MIB:
        sys.exit(f"memory grew by more than {MOST_GROWTH_MIB} MiB")


if __name__ == "__main__":
    main()
