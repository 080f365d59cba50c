"""Say which lines of the native core have run, as a report that coverage_floors.py reads.

    python tests/native_coverage.py OBJECTS REPORT

OBJECTS is the folder of a build with INGOT_COVERAGE, in which processes have left their counts
(.gcda files). A line has run if it ran in any template, on any instruction set. Instruction sets
that this machine lacks are left out, and so is code of other projects.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ingot import _native

NATIVE = Path(__file__).resolve().parent.parent / "native"
OBJECTS = "ingot_{}.dir"  # where CMake keeps those of an instruction set


def counts(objects: Path) -> Iterator[Path]:
    """The files with counts of all code that this machine can run."""
    lacking = set(_native.instruction_sets(supported_only=False)) - set(_native.instruction_sets())
    left_out = {OBJECTS.format(name) for name in lacking}
    for path in sorted(objects.rglob("*.gcda")):
        if left_out.isdisjoint(path.parts):
            yield path


def lines(counted: Path) -> dict[Path, dict[int, bool]]:
    """Which lines a source and the headers in it have, and whether they ran."""
    command = ["gcov", "--json-format", "--stdout", str(counted)]
    said = subprocess.run(command, check=True, capture_output=True, cwd=counted.parent).stdout
    found: dict[Path, dict[int, bool]] = {}
    for file in json.loads(said)["files"]:
        if (path := Path(file["file"])).is_relative_to(NATIVE):
            ran = found.setdefault(path, {})
            for line in file["lines"]:
                number = line["line_number"]
                ran[number] = ran.get(number, False) or line["count"] > 0
    return found


def report(objects: Path) -> dict[str, Any]:
    """All counts together, by file."""
    ran: dict[Path, dict[int, bool]] = {}
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(lines, counts(objects)):
            for path, here in found.items():
                known = ran.setdefault(path, {})
                for number, once in here.items():
                    known[number] = known.get(number, False) or once
    files = {}
    for path, here in sorted(ran.items()):
        missing = sorted(number for number, once in here.items() if not once)
        summary = {"covered_lines": len(here) - len(missing), "num_statements": len(here)}
        name = str(path.relative_to(NATIVE.parent))
        files[name] = {"summary": summary, "missing_lines": missing}
    return {"files": files}


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(report(Path(sys.argv[1])), indent=1))
