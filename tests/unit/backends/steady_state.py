"""Programs that test_steady_state.py runs in a process of their own; each prints JSON.

steady_state.py allocations MODEL    (with the counter of count_allocations.cpp in front)
steady_state.py memory MODEL
"""

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ingot import _native
from ingot.api import LLM
from ingot.gguf import GgufLoader
from ingot.graph.kv_type import KvType
from ingot.models import build_graph
from run_batches import GENERATION, Runner

SEQUENCES = 2
PROMPT = 40
WARM_UP, STEPS = 5, 100


class Counted:
    """A native program whose runs are counted."""

    def __init__(self, program: Any) -> None:
        self.program = program
        self.counts: list[int] = []
        self._counter = ctypes.CDLL(None)
        self._counter.count_end.restype = ctypes.c_long

    def run(self, **inputs: Any) -> float:
        """Run a step and note how often it asked the heap."""
        self._counter.count_begin()
        waited: float = self.program.run(**inputs)
        self.counts.append(self._counter.count_end())
        return waited


class Waste:
    """A program that allocates: the counter must see it."""

    def run(self, **_: Any) -> float:
        """Ask the heap for memory once, from NumPy."""
        np.empty(1 << 20, np.uint8)
        return 0.0


class Nothing:
    """A program that does nothing: what is counted then is the counting's own."""

    def run(self, **_: Any) -> float:
        """Do nothing."""
        return 0.0


def allocations(path: Path, threads: str, *kv_types: str) -> dict[str, Any]:
    """Heap allocations of each native step of a generation, and of a prompt, once warm."""
    found: dict[str, Any] = {}
    with GgufLoader(path) as model:
        graph = build_graph(model)
        size = graph.vocabulary_size
        for kind in kv_types:
            runner = Runner(
                graph,
                model,
                kv_type=KvType[kind],
                threads=int(threads),
                sequences=SEQUENCES,
                positions=2 * PROMPT + WARM_UP + STEPS,
            )
            counted = runner.backend._program = Counted(runner.backend._program)
            for _ in range(2):
                for name in range(SEQUENCES):
                    runner.step({name: np.arange(PROMPT) % size})
            prompts = counted.counts[-SEQUENCES:]
            for step in range(WARM_UP + STEPS):
                tokens = {name: [(step + name) % size] for name in range(SEQUENCES)}
                runner.step(tokens, GENERATION)
            found[kind] = {"prompts": prompts, "steps": counted.counts[-STEPS:]}
            for control in (Waste(), Nothing()):
                counted.counts, counted.program = [], control
                runner.end(0)
                runner.step({0: [1]}, GENERATION)
                found[type(control).__name__] = counted.counts
    return found


def rollup() -> dict[str, int]:
    """This process's memory in bytes, by kind."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    fields = (line.split() for line in lines)
    return {name.rstrip(":"): int(size) * 1024 for name, size, *_ in fields}


def private_pages(path: Path) -> int:
    """Bytes of the mapped file that this process has a copy of its own of."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            inside = bool(rest) and rest[-1] == str(path)
        elif inside and first == "Anonymous:":
            total += int(rest[0]) * 1024
    return total


def memory(path: Path, weights: str) -> dict[str, Any]:
    """What opening a model and writing a text adds to this process."""
    before = rollup()
    with LLM(path, context=512, cache_tokens=512, threads=1, weights=weights) as llm:
        llm.generate(np.arange(300) % llm.graph.vocabulary_size, max_tokens=20, temperature=0)
        backend = llm.engine.model._running
        repacking = llm.engine.model.repacking
        if repacking is not None:
            repacking.wait()
        after = rollup()
        return {
            "repacked": repacking.size if repacking else 0,
            "resident": after["Rss"] - before["Rss"],
            "anonymous": after["Anonymous"] - before["Anonymous"],
            "dirty": after["Private_Dirty"] - before["Private_Dirty"],
            "cache": sum(pool.nbytes for pool in backend.pools),
            "arena": backend.plan.size * backend.max_tokens,
            "copied": private_pages(path.resolve()),
            "mapped": str(path.resolve()) in Path("/proc/self/smaps").read_text(),
        }


if __name__ == "__main__":
    _native.set_isa(_native.instruction_sets()[-1])
    what, model, *rest = sys.argv[1:]
    measure = {"allocations": allocations, "memory": memory}[what]
    print(json.dumps(measure(Path(model), *rest)))
