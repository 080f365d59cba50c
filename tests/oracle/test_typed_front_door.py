"""mypy and pyright read a user's file as they should: right calls pass, each mistake is found."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.oracle

CODE = Path(__file__).parent / "user_code"
ROOT = Path(__file__).parents[2]


def wrong_lines() -> set[int]:
    lines = (CODE / "wrong.py").read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if "# wrong" in line}


def mypy(file: Path) -> set[int]:
    """The lines of a file in which mypy finds something wrong."""
    pytest.importorskip("mypy", reason="mypy is not here: pip install '.[oracle]'")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--config-file=", file]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=ROOT / "src", check=False
    )
    assert ran.returncode in (0, 1), ran.stderr
    return {int(line) for line in re.findall(rf"{file.name}:(\d+): error", ran.stdout)}


def pyright(file: Path) -> set[int]:
    """The same for pyright."""
    pytest.importorskip("basedpyright", reason="pyright is not here: pip install '.[oracle]'")
    project = CODE / "pyrightconfig.json"
    command = [sys.executable, "-m", "basedpyright", "--project", project, "--outputjson"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    found = json.loads(ran.stdout)["generalDiagnostics"]
    return {each["range"]["start"]["line"] + 1 for each in found if _is_in(each, file)}


def _is_in(found: dict, file: Path) -> bool:
    return found["severity"] == "error" and Path(found["file"]) == file


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_right_calls_pass(checker) -> None:
    assert checker(CODE / "good.py") == set()


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_each_mistake_is_found(checker) -> None:
    assert checker(CODE / "wrong.py") == wrong_lines()
