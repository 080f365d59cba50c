"""The tools of `make mutants` and `make coverage`."""

import ast
import json
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest

import native_coverage
from coverage_floors import SLACK, by_package
from ingot import _native
from mutants.cpp_mutants import HEADERS, cpp_mutants
from mutants.python_mutants import mutants
from mutants.run import put_in_place
from mutants.targets import PYTHON, ROOT

SOURCE = '''"""Docstring: 1 + 1."""
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import other

LIMIT = 3


class Counter:
    size: int = 7

    def add(self, amount: int = 2) -> bool:
        """Add 5."""
        if amount < 0:
            raise ValueError(f"{amount + 1} is less than {0}")
        self.total += amount
        self.notify()
        return not self.full and True
'''


def faults(source: str) -> list[str]:
    return [mutant.fault for mutant in mutants("src/x.py", source)]


def test_every_fault_is_in_one_place() -> None:
    assert faults(SOURCE) == [
        "LIMIT = 3  ->  LIMIT = 4",
        "def add(self, amount: int=2) -> bool:  ->  def add(self, amount: int=3) -> bool:",
        "if amount < 0:  ->  if amount <= 0:",
        "if amount < 0:  ->  if amount < 1:",
        "self.total += amount  ->  self.total -= amount",
        "self.notify()  ->  pass",
        "return not self.full and True  ->  return not self.full or True",
        "return not self.full and True  ->  return +bool(self.full) and True",
        "return not self.full and True  ->  return not self.full and False",
    ]


def test_a_mutant_is_the_source_but_for_its_fault() -> None:
    original = ast.unparse(ast.parse(SOURCE)).splitlines()
    for mutant in mutants("src/x.py", SOURCE):
        changed = ast.unparse(mutant.tree).splitlines()
        assert sum(a != b for a, b in zip(original, changed, strict=True)) == 1
        compile(mutant.tree, "x.py", "exec")


def test_a_mutant_replaces_functions_that_others_have_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "LEAST = 1\n\ndef less(a, b=4, *, c=4):\n    return a < b and LEAST <= a < c\n"
    path = tmp_path / "mutated_example.py"
    path.write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    less = import_module("mutated_example").less

    monkeypatch.setattr("mutants.run.ROOT", tmp_path)
    usual = SourceFileLoader.get_code
    try:
        assert not less(1, 1)
        assert less(3)
        constant, keyword, plain, *others = mutants("mutated_example.py", source)
        put_in_place(keyword)  # c=5
        assert less(4, 5)
        put_in_place(plain)  # c=4 again, b=5
        assert less(3)
        assert not less(4, c=4)
        assert less(4, c=5)
        put_in_place(next(m for m in others if "a <= b" in m.fault))
        assert less(1, 1)
        assert less(1, 2)
        put_in_place(constant)  # which has the usual comparison, and LEAST = 2
        assert not less(1, 2)
        assert less(2, 3)
    finally:
        SourceFileLoader.get_code = usual  # type: ignore[method-assign]
        del sys.modules["mutated_example"]


@pytest.mark.parametrize("name", PYTHON)
def test_targets_exist_and_have_mutants(name: str) -> None:
    target = PYTHON[name]
    assert all(path.is_file() for path in (*target.files, *target.tests))
    path = target.files[0]
    assert any(mutants(str(path.relative_to(ROOT)), path.read_text()))


@pytest.mark.parametrize("header", HEADERS)
def test_mutants_of_a_header_differ_in_one_line(header: str) -> None:
    original = (ROOT / "native" / header).read_text().splitlines()
    found = list(cpp_mutants(header))
    assert len(found) > 10
    for mutant in found:
        changed = mutant.text.splitlines()
        assert [i + 1 for i, line in enumerate(changed) if line != original[i]] == [mutant.line]


def report_of(counts: dict[str, tuple[int, int]]) -> dict[str, Any]:
    """A report, from the lines of each file that ran, and all of its lines."""
    return {
        "files": {
            name: {"summary": {"covered_lines": ran, "num_statements": of}}
            for name, (ran, of) in counts.items()
        }
    }


def compare(
    tmp_path: Path, counts: dict[str, tuple[int, int]], least: dict[str, float], *, accept: bool
) -> subprocess.CompletedProcess[str]:
    """Compare a report with floors."""
    (tmp_path / "report.json").write_text(json.dumps(report_of(counts)))
    (tmp_path / "floors.json").write_text(json.dumps(least))
    command = [sys.executable, ROOT / "tests" / "coverage_floors.py", tmp_path / "report.json"]
    command += ["--floors", tmp_path / "floors.json", *(["--accept"] if accept else [])]
    return subprocess.run(command, capture_output=True, check=False, text=True)


def floors(tmp_path: Path, *, covered: int, least: dict[str, float], accept: bool = False) -> int:
    """Compare a report of two packages with floors; gives the exit status."""
    counts = {"src/ingot/api.py": (5, 10), "src/ingot/gguf/loader.py": (covered, 10)}
    return compare(tmp_path, counts, least, accept=accept).returncode


def test_coverage_must_not_fall(tmp_path: Path) -> None:
    least = {"gguf": 80.0, "all": 60.0, "modules": 50.0, "not in this report": 99.0}
    assert floors(tmp_path, covered=8, least=least) == 0
    assert floors(tmp_path, covered=7, least=least) == 1


def test_a_package_without_a_floor_is_an_error(tmp_path: Path) -> None:
    done = compare(
        tmp_path,
        {"native/kernels/decode.h": (9, 10), "native/isa/table.h": (9, 10)},
        {"native": 50.0, "native/kernels": 50.0},
        accept=False,
    )
    assert done.returncode == 1
    assert done.stderr == "no floor, run this again with --accept: native/isa\n"


def test_floors_have_slack_for_other_machines(tmp_path: Path) -> None:
    counts = {"native/kernels/decode.h": (9, 10), "native/isa/table.h": (0, 10)}
    assert compare(tmp_path, counts, {}, accept=True).returncode == 0
    written = json.loads((tmp_path / "floors.json").read_text())
    assert written == {
        "native": 45 - SLACK,
        "native/isa": 0.0,
        "native/kernels": 90 - SLACK,
    }
    assert compare(tmp_path, counts, written, accept=False).returncode == 0


def test_accepted_coverage_only_rises(tmp_path: Path) -> None:
    assert floors(tmp_path, covered=9, least={"gguf": 80.0, "other": 10.0}, accept=True) == 0
    written = json.loads((tmp_path / "floors.json").read_text())
    reached = {"all": 70.0, "gguf": 90.0, "modules": 50.0}
    assert written == {name: share - SLACK for name, share in reached.items()} | {"other": 10.0}
    floors(tmp_path, covered=1, least=written, accept=True)
    assert json.loads((tmp_path / "floors.json").read_text()) == written


def test_native_code_is_counted_by_folder() -> None:
    files = {
        "native/bindings.cpp": (1, 4),
        "native/bindings/isa.cpp": (1, 1),
        "native/kernels/decode.h": (5, 5),
    }
    assert by_package(report_of(files)) == {
        "native": 70.0,
        "native/bindings": 40.0,
        "native/kernels": 100.0,
    }


def test_backends_are_counted_each_by_itself() -> None:
    files = {
        "src/ingot/backends/cpu/seats.py": (9, 10),
        "src/ingot/backends/gpu/kernels/linear.py": (0, 10),
        "src/ingot/backends/registry.py": (3, 4),
    }
    assert by_package(report_of(files)) == {
        "all": 50.0,
        "backends": 75.0,
        "backends/cpu": 90.0,
        "backends/gpu": 0.0,
    }


HEADER = """template <bool yes>
inline int choose(int x) {
  if constexpr (yes)
    x += 1;
  if (x > 5)
    x = 7;
  return x;
}
"""


@pytest.mark.skipif(not shutil.which("gcov"), reason="gcov is not here")
def test_a_line_has_run_if_any_template_ran_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sources include a header; a third is of an instruction set that this machine lacks."""
    monkeypatch.setattr(native_coverage, "NATIVE", tmp_path / "native")
    monkeypatch.setattr(_native, "instruction_sets", lambda **_: ["a"] if not _ else ["a", "b"])
    (tmp_path / "native").mkdir()
    (tmp_path / "native/choose.h").write_text(HEADER)
    call = '#include "choose.h"\nint main() {{ return choose<{}>({}) ? 0 : 1; }}\n'
    for name, code in {
        "ingot_a.dir/one": call.format("false", 2),
        "ingot_a.dir/two": call.format("true", 3),
        "ingot_b.dir/lacking": call.format("true", 9),
    }.items():
        program = tmp_path / name
        program.parent.mkdir(exist_ok=True)
        source = tmp_path / "native" / f"{program.name}.cpp"
        source.write_text(code)
        command = ["g++", "-std=c++20", "--coverage", "-fprofile-abs-path", "-c", source]
        subprocess.run([*command, "-o", f"{program}.o"], check=True)
        subprocess.run(["g++", "--coverage", f"{program}.o", "-o", program], check=True)
        subprocess.run([program], check=True)
    found = native_coverage.report(tmp_path)["files"]
    assert set(found) == {"native/choose.h", "native/one.cpp", "native/two.cpp"}
    assert found["native/choose.h"]["missing_lines"] == [6]
    assert found["native/choose.h"]["summary"]["covered_lines"] == 4
