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


@pytest.mark.parametrize("path", ["docs/site/requirements.txt", "tests/cross/requirements.txt"])
def test_other_environments_have_exact_versions(path: str) -> None:
    lines = (ROOT / path).read_text().splitlines()
    assert len(pins(lines)) == len([line for line in lines if line and not line.startswith("#")])


def test_what_builds_a_source_distribution_has_exact_versions() -> None:
    required = PROJECT["build-system"]["requires"]
    assert len(pins(required)) == len(required)


def test_the_version_of_the_package_is_in_the_changelog() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert re.search(rf"^## .*{re.escape(ingot.__version__)}", changelog(), re.MULTILINE)


def changelog() -> str:
    return (ROOT / "CHANGELOG.md").read_text()
