"""Compare the coverage of a run with what it must not fall below.

    python tests/coverage_floors.py build/coverage/report.json [--accept]

A report of coverage.py or of native_coverage.py comes in; a table of packages goes out.
`coverage_floors.json` beside this file has the percentage that each package must reach; less is an
error, and so is a package that is not in it. `--accept` writes `SLACK` points less than what this
run has reached, if that is higher: the machine decides which instruction sets run, and which
packages, browsers and systems there are to test.
"""

import argparse
import json
import sys
from pathlib import Path, PurePosixPath

FLOORS = Path(__file__).with_name("coverage_floors.json")
SLACK = 2.0


def by_package(report: dict[str, dict[str, dict[str, dict[str, int]]]]) -> dict[str, float]:
    """The share of lines that ran, in percent, of every folder of the package, and of all."""
    counts: dict[str, list[int]] = {}
    for file, found in report["files"].items():
        for package in _packages(PurePosixPath(file).parts):
            count = counts.setdefault(package, [0, 0])
            count[0] += found["summary"]["covered_lines"]
            count[1] += found["summary"]["num_statements"]
    return {name: 100 * ran / max(of, 1) for name, (ran, of) in sorted(counts.items())}


def _packages(parts: tuple[str, ...]) -> tuple[str, str]:
    """All of it, and the folder of a file."""
    if parts[0] == "native":
        return "native", "/".join(parts[:2]) if len(parts) > 2 else "native/bindings"
    inside = parts[len(parts) - parts[::-1].index("ingot") :]
    if inside[0] == "backends" and len(inside) > 2:  # each needs something else to run
        return "all", "/".join(inside[:2])
    return "all", inside[0] if len(inside) > 1 else "modules"


def floor_of(share: float) -> float:
    """What later runs must reach, if this one has reached a share."""
    return max(0.0, int((share - SLACK) * 10) / 10)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", type=Path)
    parser.add_argument("--accept", action="store_true", help="write what is higher than before")
    parser.add_argument("--floors", type=Path, default=FLOORS)
    options = parser.parse_args()
    found = by_package(json.loads(options.report.read_text()))
    floors: dict[str, float] = json.loads(options.floors.read_text())
    if options.accept:
        for name, share in found.items():
            floors[name] = max(floor_of(share), floors.get(name, 0.0))
        options.floors.write_text(json.dumps(dict(sorted(floors.items())), indent=2) + "\n")
    for name, share in found.items():
        print(f"{name:18}{share:7.1f}%  (at least {floors.get(name, '?')}%)")
    faults = []
    if fallen := [name for name, share in found.items() if share < floors.get(name, 0.0)]:
        faults.append(f"less code is tested than before: {', '.join(fallen)}")
    if new := [name for name in found if name not in floors]:
        faults.append(f"no floor, run this again with --accept: {', '.join(new)}")
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
