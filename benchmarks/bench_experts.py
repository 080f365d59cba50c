"""Which bytes of a mixture-of-experts model decoding reads, and how much other memory it uses.

    python benchmarks/bench_experts.py [--models FOLDER] [--steps 16] [--json]

It opens a file of gpt-oss's shape and generates some tokens. After every step the page tables show
which pages of the file are mapped: all pages of the chosen experts, and of the others only what the
kernel maps around a page that was read (up to 2 MB either way, since Linux 6.18). It prints the
mapped bytes, the experts read in each layer, and the private memory of the process. It fails if an
expert was read in part, or if more experts were read than used. It measures no time.
"""

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import models
from ingot.backends.batch import ExecutionPhase
from ingot.engine import LoadedModel
from ingot.gguf import GgufLoader, LazyTensor

SHAPE, MIX = "gpt-oss-20b-10-layers", "MXFP4"
PAGE = 4096
AROUND = 512  # pages that the system may map around one that was read
PRESENT = np.uint64(1 << 63)


@dataclass(frozen=True, slots=True)
class Row:
    """What the process has touched after some steps."""

    steps: int
    file_bytes: int
    mapped_bytes: int  # of the file: read, or mapped around a page that was read
    experts: int  # of a layer
    experts_read: float  # of a layer, on average
    own_bytes: int  # private memory: cache, arena, buffers, Python


def touched_pages(address: int, size: int) -> NDArray[np.bool_]:
    """Whether this process has touched each page of a range of its memory."""
    first, last = address // PAGE, (address + size - 1) // PAGE
    with Path("/proc/self/pagemap").open("rb") as pagemap:
        pagemap.seek(first * 8)
        entries = np.frombuffer(pagemap.read((last - first + 1) * 8), np.uint64)
    touched: NDArray[np.bool_] = (entries & PRESENT) != 0
    return touched


def own_memory() -> int:
    """Bytes of private memory."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    sizes = {line.split()[0]: int(line.split()[1]) for line in lines}
    return sizes["Anonymous:"] * 1024


def touched_experts(tensor: LazyTensor) -> set[int]:
    """The experts of a tensor that were read; half-read ones are an error."""
    experts = tensor.shape[0]
    size = tensor.nbytes // experts
    found = set()
    for expert in range(experts):
        pages = touched_pages(tensor.data.ctypes.data + expert * size, size)
        if pages.all():
            found.add(expert)
        elif pages[AROUND:-AROUND].any():
            raise SystemExit(
                f"{tensor.name}: {pages.sum()} of {pages.size} pages of expert {expert} were read"
            )
    return found


def layers_of_experts(file: GgufLoader) -> list[list[LazyTensor]]:
    """Gate, up and down of every layer."""
    stacked: dict[str, list[LazyTensor]] = {}
    for name, tensor in file.tensors.items():
        if name.endswith("_exps.weight"):
            stacked.setdefault(name.rpartition(".ffn")[0], []).append(tensor)
    return list(stacked.values())


def look(file: GgufLoader, steps: int, used: int) -> Row:
    """What was touched; wrong if more experts than the steps can have chosen."""
    layers = layers_of_experts(file)
    chosen = []
    for tensors in layers:
        experts = [touched_experts(tensor) for tensor in tensors]
        if any(found != experts[0] for found in experts) or len(experts[0]) > steps * used:
            raise SystemExit(f"{tensors[0].name}: experts {experts} were read in {steps} steps")
        chosen.append(len(experts[0]))

    places = ((tensor.data.ctypes.data, tensor.nbytes) for tensor in file.tensors.values())
    return Row(
        steps=steps,
        file_bytes=sum(tensor.nbytes for tensor in file.tensors.values()),
        mapped_bytes=sum(int(touched_pages(*place).sum()) * PAGE for place in places),
        experts=layers[0][0].shape[0],
        experts_read=float(np.mean(chosen)),
        own_bytes=own_memory(),
    )


def measure(path: Path, steps: int) -> list[Row]:
    """Rows before the first step, and after 1, 2, 4, ... of them."""
    rows = []
    with LoadedModel(path, threads=2, context=512) as model:
        architecture = model.file.metadata.string("general.architecture")
        used = model.file.metadata.integer(f"{architecture}.expert_used_count")
        rows.append(look(model.file, 0, used))
        sequence, first = model.sequence(), np.zeros(1, np.int32)
        for step in range(1, steps + 1):
            token = np.array([step * 7919 % model.graph.vocabulary_size], np.int32)
            model.step([sequence], [token], first, ExecutionPhase.GENERATION)
            if step & (step - 1) == 0:
                rows.append(look(model.file, step, used))
        sequence.close()
    return rows


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, default=Path("build/models"), metavar="FOLDER")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = measure(models.synthetic(SHAPE, MIX, options.models), options.steps)
    print(
        f"{'steps':>5} {'mapped':>9} {'of file':>8} {'experts read':>13} {'own memory':>11}",
        file=sys.stderr,
    )
    for row in rows:
        print(
            f"{row.steps:5} {row.mapped_bytes / 1e6:6.0f} MB "
            f"{row.mapped_bytes / row.file_bytes:8.1%} "
            f"{row.experts_read:6.1f} of {row.experts:3} {row.own_bytes / 1e6:8.0f} MB",
            file=sys.stderr,
        )
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
