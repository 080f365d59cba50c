"""`ingot pull`, `run`, `search` and `LLM` with models of a server on this machine."""

import re
from pathlib import Path

import pytest
from model_server import HubAndOllama
from pull_processes import ingot

from checkpoints import write_llama
from ingot import LLM, GgufLoader, store
from ingot.cli.shared import planned_memory, served_models
from ingot.errors import StoreError
from ingot.graph.kv_type import KvType
from ingot.memory_estimate import estimate_memory
from tiny_llama import write_tiny_llama

REPO = "Owner/Tiny-GGUF"


@pytest.fixture
def model(home: Path) -> bytes:
    path = home / "tiny.gguf"
    write_tiny_llama(path)
    content = path.read_bytes()
    path.unlink()
    return content


@pytest.fixture
def names(server: HubAndOllama, model: bytes) -> list[str]:
    """The same model in three places."""
    server.add_repo(REPO, {"tiny-Q8_0.gguf": model})
    server.files["/tiny.gguf"] = model
    server.add_ollama("library/tiny", "latest", {"model": model, "system": b"Be brief."})
    return [f"hf:{REPO}", f"{server.url}/tiny.gguf", f"ollama:{server.host}/library/tiny"]


@pytest.mark.parametrize("number", range(3))
def test_a_newcomer(
    number: int, names: list[str], environment: dict[str, str], model: bytes
) -> None:
    """Look, pull, list, run and remove a model, by its name alone."""
    if number == 0:
        pytest.importorskip("huggingface_hub", reason="pip install 'ingot-llm[hub]'")
    name = names[number]
    planned = ingot(environment, "pull", "--dry-run", name)
    assert planned.returncode == 0, planned.stderr
    assert re.search(r"memory needed +about [\d.]+ KiB", planned.stdout)  # said by its header
    assert planned.stdout.splitlines()[-1].split() == ["fits", "yes"]
    pulled = ingot(environment, "pull", name)
    assert pulled.returncode == 0, pulled.stderr
    assert Path(pulled.stdout.strip()).read_bytes() == model
    assert "downloading" in pulled.stderr
    ran = ingot(environment, "run", "--raw", "-n", "3", "-t", "1", name, "hello")
    assert ran.returncode == 0, ran.stderr
    assert "downloading" not in ran.stderr
    assert "generated 3 tokens" in ran.stderr or "generated" in ran.stderr
    listed = ingot(environment, "list").stdout.splitlines()
    assert len(listed) == 2
    removed = ingot(environment, "remove", listed[1].split()[0])
    assert removed.returncode == 0, removed.stderr
    assert len(ingot(environment, "list").stdout.splitlines()) == 0


def test_search(names: list[str], environment: dict[str, str]) -> None:
    pytest.importorskip("huggingface_hub", reason="pip install 'ingot-llm[hub]'")
    found = ingot(environment, "search", "tiny")
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines()[1].split()[0] == names[0]
    assert ingot(environment, "search", "nothing").stdout == ""


def test_llm_downloads_what_it_is_asked_for(
    server: HubAndOllama, names: list[str], model: bytes
) -> None:
    with LLM(names[1], threads=1) as llm:
        assert llm.path.read_bytes() == model
        assert llm.generate("a", max_tokens=2).token_ids
    asked = len(server.asked)
    with LLM(names[1], threads=1):
        assert len(server.asked) == asked


def test_a_served_url_may_have_an_equals_sign(names: list[str], model: bytes) -> None:
    url = f"{names[1]}?download=true"
    for given, name in ((url, "tiny"), (f"mine={url}", "mine")):
        found, path = served_models._named(given)
        assert found == name
        assert path.read_bytes() == model


@pytest.mark.parametrize("headers", [(1 << 20,), (50, 300, 1 << 20), (50, 300)])
def test_memory_is_read_from_the_header(
    headers: tuple[int, ...], names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planned_memory, "_HEADERS", headers)
    plan = store.plan_pull(names[1])
    needed = planned_memory.planned_memory(plan)
    path = store.pull(names[1])
    with GgufLoader(path) as loader:
        estimate = estimate_memory(loader, None, KvType.F16)
        assert estimate
    assert needed == (estimate.total if headers[-1] > 300 else plan.memory)
    assert planned_memory.planned_memory(plan) == estimate.total


def test_llm_of_a_missing_file_says_so(home: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LLM(str(home / "missing.gguf"))
    with pytest.raises(StoreError, match="use hf:OWNER/REPO"):
        LLM("hf:x")


CHECKPOINT = "Owner/Model"


@pytest.fixture
def saved(server: HubAndOllama, home: Path) -> str:
    """A repository with a checkpoint and no GGUF file."""
    pytest.importorskip("huggingface_hub", reason="pip install 'ingot-llm[hub]'")
    folder = write_llama(home / "saved", eos_token_id=60)
    server.add_repo(CHECKPOINT, {path.name: path.read_bytes() for path in folder.iterdir()})
    return CHECKPOINT


@pytest.mark.parametrize("prefix", ["", "hf:"])
def test_a_converted_checkpoint_has_the_name_of_its_repository(
    prefix: str, saved: str, environment: dict[str, str], home: Path
) -> None:
    done = ingot(environment, "convert", f"{prefix}{saved}", cwd=home)
    assert (done.returncode, done.stdout) == (0, "Model-F32.gguf\n"), done.stderr
    with GgufLoader(home / "Model-F32.gguf") as loader:
        assert loader.metadata.string("general.name") == "Model"
    offline = environment | {"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": "http://127.0.0.1:9"}
    again = ingot(offline, "convert", f"{prefix}{saved}", "-o", "again.gguf", cwd=home)
    assert again.returncode == 0, again.stderr
    assert (home / "again.gguf").read_bytes() == (home / "Model-F32.gguf").read_bytes()


def test_a_checkpoint_is_pulled_listed_run_and_removed(
    saved: str, environment: dict[str, str], home: Path
) -> None:
    name = f"hf:{saved}"
    planned = ingot(environment, "pull", "--dry-run", name)
    assert planned.returncode == 0, planned.stderr
    assert "taking the checkpoint, because there is no GGUF file" in planned.stdout
    pulled = ingot(environment, "pull", name)
    assert pulled.returncode == 0, pulled.stderr
    assert (Path(pulled.stdout.strip()) / "model.safetensors").is_file()
    for model in (name, f"{name}:q8_0"):
        ran = ingot(environment, "run", "--raw", "-n", "3", "-t", "1", model, "ABC")
        assert ran.returncode == 0, ran.stderr
        assert "downloading" not in ran.stderr
        assert "generated" in ran.stderr
    rows = [line.split() for line in ingot(environment, "list").stdout.splitlines()[1:]]
    assert [(row[0].partition("-Q8_0-")[0], *row[-3:]) for row in rows] == [
        ("Model", "llama", "Q8_0", "ingot"),
        (name, "llama", "F32", "hub"),
    ]
    for row in rows:
        removed = ingot(environment, "remove", row[0])
        assert removed.returncode == 0, removed.stderr
    assert ingot(environment, "list").stdout == ""
    assert not [path for path in (home / ".cache").rglob("blobs/*") if path.is_file()]
