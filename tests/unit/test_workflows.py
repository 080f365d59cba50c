"""The workflows name targets, files and jobs that exist, and try what users run."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from cross.targets import TARGETS

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").iterdir())
MAKE = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def jobs(name: str) -> dict[str, Any]:
    (path,) = (path for path in WORKFLOWS if path.stem == name)
    found: dict[str, Any] = yaml.safe_load(path.read_text())["jobs"]
    return found


def commands(job: dict[str, Any]) -> str:
    """What a job runs in a shell."""
    return "\n".join(step.get("run", "") for step in job["steps"])


ALL = {
    f"{path.stem}-{name}": commands(job)
    for path in WORKFLOWS
    for name, job in jobs(path.stem).items()
}


@pytest.mark.parametrize("name", ALL)
def test_what_a_job_names_is_there(name: str) -> None:
    assert set(re.findall(r"(?:^|&& )make ([\w-]+)", ALL[name], re.MULTILINE)) <= MAKE
    for path in re.findall(r"(?<![\w./-])(?:tests|deploy)/[\w./-]+", ALL[name]):
        assert (ROOT / path).exists(), path
    for needed in re.findall(r"--constraint (\S+)", ALL[name]):
        assert (ROOT / needed).is_file(), needed


def test_modules_for_windows_and_macos_are_checked_in_every_wheel() -> None:
    built = {entry["os"].partition("-")[0] for entry in matrix()}
    assert built == {"ubuntu", "macos", "windows"}
    checked = set(re.findall(r"imports\.py (\S+)", commands(jobs("wheels")["audit"])))
    assert checked == {name for name, target in TARGETS.items() if target.system != "Linux"}
    of_each = {"AMD64": "windows-x86_64", "ARM64": "windows-arm64", "arm64": "macos-arm64"}
    assert {of_each[entry["archs"]] for entry in matrix() if entry["archs"] in of_each} == checked


def matrix() -> list[dict[str, str]]:
    found: list[dict[str, str]] = jobs("wheels")["wheels"]["strategy"]["matrix"]["include"]
    return found


def test_a_wheel_generates_before_it_is_kept() -> None:
    tried = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    assert any("ingot run" in command for command in tried["test-command"])
    assert "try_wheel.py" in commands(jobs("wheels")["wheels"])  # those that are not tried inside


def test_both_images_that_the_containerfile_describes_are_built_and_started() -> None:
    ran = commands(jobs("quality")["containers"])
    described = (ROOT / "deploy" / "Containerfile").read_text().replace("\n#", "")
    arguments = [
        dict(re.findall(r'--build-arg (\w+)=("[^"]*"|\S+)', text)) for text in (ran, described)
    ]
    assert arguments[0] == arguments[1]
    assert len(arguments[0]) == 3
    for image in ("ingot", "ingot:cuda"):
        assert f"docker build -t {image} " in ran
        assert re.search(rf"docker run .*--entrypoint ingot {image} info", ran)
