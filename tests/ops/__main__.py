"""Time the table of operations: `PYTHONPATH=tests python -m ops [--isa avx2] [attention ...]`.

Each line is a case on the CPU: microseconds for all its tokens as one prompt, and for one step of a
generation, the smaller half of some repetitions averaged. Nothing else should run meanwhile.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from ingot import _native
from ops.case import Case
from ops.cpu import runner_of
from ops.table import TABLE
from run_batches import GENERATION, Runner, using_isa

REPETITIONS = 20


def best(work: Callable[[], None]) -> float:
    """Microseconds."""
    times = []
    for _ in range(REPETITIONS):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    fast = sorted(times)[: REPETITIONS // 2]
    return 1e6 * sum(fast) / len(fast)


def prompt(runner: Runner, ids: list[int]) -> None:
    runner.step({"timed": ids})
    runner.end("timed")


def generation(runner: Runner, ids: list[int]) -> None:
    runner.step({"timed": ids[:1]}, GENERATION)
    runner.end("timed")


def measured(case: Case, folder: Path) -> tuple[float, float]:
    with case.opened(folder) as (graph, model):
        runner = runner_of(case, graph, model)
        return best(lambda: prompt(runner, case.ids)), best(lambda: generation(runner, case.ids))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", help="all, if none is named")
    parser.add_argument("--isa", default=_native.active_isa(), choices=_native.instruction_sets())
    arguments = parser.parse_args()
    known = _native.CODES["KvType"].__members__
    print(f"{'prompt us':>10} {'generation us':>14}  case ({arguments.isa})")
    with tempfile.TemporaryDirectory() as folder, using_isa(arguments.isa):
        for case in TABLE:
            asked = not arguments.families or case.family in arguments.families
            if asked and case.kv_type.name in known:
                many, one = measured(case, Path(folder))
                print(f"{many:10.1f} {one:14.1f}  {case.family} {case}")


if __name__ == "__main__":
    main()
