"""The index has another package named `ingot`: mixed with ours, it is refused by name."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ingot
from ingot._namesake import DISTRIBUTION

ROOT = Path(__file__).parents[2]
OURS = Path(ingot.__file__).parent


@pytest.fixture
def site_packages(tmp_path: Path) -> Path:
    """A folder of installed packages with the parts of ours that an import reads first."""
    (tmp_path / "ingot_llm-0.1.0.dist-info").mkdir()
    (tmp_path / "ingot").mkdir()
    for name in ("__init__.py", "_namesake.py", "errors.py"):
        shutil.copy(OURS / name, tmp_path / "ingot" / name)
    return tmp_path


def imported(folder: Path, module: str) -> subprocess.CompletedProcess[str]:
    program = f"import sys; sys.path.insert(0, {str(folder)!r}); import {module}"
    return subprocess.run(
        [sys.executable, "-S", "-c", program],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_alone_it_is_imported(site_packages: Path) -> None:
    assert imported(site_packages, "ingot.errors").returncode == 0


def test_installed_over_the_other_package_it_says_so(site_packages: Path) -> None:
    (site_packages / "ingot-0.3.dist-info").mkdir()
    ran = imported(site_packages, "ingot")
    assert ran.returncode == 1
    assert "pip uninstall ingot ingot-llm" in ran.stderr


def test_overwritten_by_the_other_package_it_says_so(site_packages: Path) -> None:
    (site_packages / "ingot" / "__init__.py").write_text("__version__ = '0.3'\n")
    ran = imported(site_packages, "ingot.errors")
    assert ran.returncode == 1
    assert "pip uninstall ingot ingot-llm" in ran.stderr


def test_no_message_or_page_sends_users_to_the_other_package() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"] == DISTRIBUTION
    pages = [*ROOT.glob("*.md"), ROOT / "pyproject.toml", ROOT / "Makefile"]
    for folder in ("docs", "src", "tests", "benchmarks", "examples"):
        pages += [path for path in (ROOT / folder).rglob("*") if path.suffix in {".md", ".py"}]
    stranger = re.compile(r"(?<!un)install '?ingot(?!-llm)\b|(?<![\w.-])ingot\[(?!-llm)")
    found = [str(path) for path in pages if stranger.search(path.read_text())]
    assert found == []
