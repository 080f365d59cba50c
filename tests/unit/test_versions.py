"""Every version is said in one place, or a test compares the places."""

import re
import tomllib
from pathlib import Path

import pytest

import ingot

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def pins(lines: list[str]) -> dict[str, str]:
    """The packages with an exact version, by their normal name."""
    found = (re.match(r"([A-Za-z0-9._-]+)(?:\[.*\])?==([^;\s]+)", line) for line in lines)
    return {re.sub(r"[-_.]+", "-", pin[1]).lower(): pin[2] for pin in found if pin}


LOCK = pins((ROOT / "requirements.lock").read_text().splitlines())


def test_the_lock_has_an_exact_version_of_each_package() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    assert len(LOCK) == len([line for line in lines if not line.startswith("#")]) > 50


@pytest.mark.parametrize(
    "requirements",
    [PROJECT["build-system"]["requires"], *PROJECT["project"]["optional-dependencies"].values()],
)
def test_exact_requirements_agree_with_the_lock(requirements: list[str]) -> None:
    for name, version in pins(requirements).items():
        assert LOCK.get(name) == version, name


@pytest.mark.parametrize("folder", ["docs/site", "tests/cross", "tests/gpu"])
def test_other_environments_have_exact_versions(folder: str) -> None:
    lines = (ROOT / folder / "requirements.txt").read_text().splitlines()
    assert len(pins(lines)) == len([line for line in lines if line and not line.startswith("#")])


def test_make_installs_no_range_of_versions() -> None:
    """Exact ones are in requirements.lock or in one of these files."""
    installs = [line for line in (ROOT / "Makefile").read_text().splitlines() if "install" in line]
    assert not [line for line in installs if re.search(r"'[a-z0-9-]+[<>~=]", line)]


def test_what_builds_a_source_distribution_has_exact_versions() -> None:
    required = PROJECT["build-system"]["requires"]
    assert len(pins(required)) == len(required)


def test_the_version_of_the_package_is_in_the_changelog() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert re.search(rf"^## .*{re.escape(ingot.__version__)}", changelog(), re.MULTILINE)


def test_the_oldest_compilers_are_the_same_everywhere() -> None:
    """CMake refuses older ones; `make` and the page that one reads first say so before."""
    refused = re.search(r"\bVERSION_LESS (\d+)\)", (ROOT / "CMakeLists.txt").read_text())
    assert refused
    for name in ("Makefile", "README.md"):
        text = (ROOT / name).read_text()
        assert set(re.findall(r"g\+\+ (\d+)", text)) == {refused[1]}, name
        assert len(set(re.findall(r"clang (\d+)", text))) == 1, name
    needed = re.search(r"needs g\+\+ (\d+)", (ROOT / "CMakeLists.txt").read_text())
    assert needed
    assert needed[1] == refused[1]


def changelog() -> str:
    return (ROOT / "CHANGELOG.md").read_text()
