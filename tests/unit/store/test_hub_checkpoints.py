"""Checkpoints of the hub, from a server that speaks its protocol: found, listed, run, removed."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from model_server import COMMIT, HubAndOllama

from checkpoints import write_llama
from ingot import LLM, convert, store
from ingot.cli.shared.planned_memory import planned_memory
from ingot.convert import locate_quantized
from ingot.errors import (
    DownloadError,
    MemoryShortageError,
    ModelNotFoundError,
    QuantError,
    StoreError,
)
from ingot.gguf import GgufLoader
from ingot.store import hub as hub_module
from ingot.store import hub_cache

REPO, NAME = "Owner/Model", "hf:Owner/Model"
PARTS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
INDEX = {"weight_map": {f"tensor.{number}": name for number, name in enumerate(PARTS)}}
FILES = {
    "config.json": b"{}",
    PARTS[0]: b"one" * 1000,
    PARTS[1]: b"two" * 1000,
    "model.safetensors.index.json": json.dumps(INDEX).encode(),
    "tokenizer.model": b"pieces",
    "1_Pooling/config.json": b"{}",
    "original/consolidated.safetensors": b"the same again",
    "consolidated.safetensors": b"the same again, beside it",
    "pytorch_model.bin": b"pickled",
    "README.md": b"# A model",
}
LEFT_OUT = ("original/consolidated.safetensors", "consolidated.safetensors", "pytorch_model.bin")
TAKEN = {name: data for name, data in FILES.items() if name not in LEFT_OUT and name != "README.md"}


@pytest.fixture
def hub(hub_server: HubAndOllama) -> HubAndOllama:
    hub_server.add_repo(REPO, FILES)
    return hub_server


@pytest.fixture
def llama(hub_server: HubAndOllama, tmp_path: Path) -> HubAndOllama:
    """A hub whose repository is a checkpoint that runs."""
    folder = write_llama(tmp_path / "saved", eos_token_id=60)
    hub_server.add_repo(REPO, {path.name: path.read_bytes() for path in folder.iterdir()})
    shutil.rmtree(folder)
    return hub_server


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.*")}


def test_a_checkpoint_comes_with_what_describes_it(hub: HubAndOllama) -> None:
    folder = store.checkpoint(NAME)
    assert files_of(folder) == TAKEN
    assert folder.name == COMMIT
    asked = len(hub.asked)
    assert store.checkpoint(NAME) == store.checkpoint(REPO) == store.find(NAME) == folder
    assert len(hub.asked) == asked


def test_mistrals_own_form_comes_if_there_is_no_other(hub_server: HubAndOllama) -> None:
    files = {name: data for name, data in FILES.items() if not name.startswith("model")}
    hub_server.add_repo(REPO, files)
    folder = store.checkpoint(NAME)
    assert [path.name for path in folder.glob("*.safetensors")] == ["consolidated.safetensors"]


def test_the_same_weights_in_another_precision_stay_there(hub_server: HubAndOllama) -> None:
    twice = ("model.fp32-00001-of-00002.safetensors", "model.fp32-00002-of-00002.safetensors")
    others = {"config.json": b"{}", "tokenizer.json": b"{}"}
    files = dict.fromkeys(("model.safetensors", *twice), b"weights") | others
    hub_server.add_repo(REPO, files)
    assert files_of(store.checkpoint(NAME)).keys() == {"model.safetensors", *others}


@pytest.mark.usefixtures("hub")
def test_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    package = pytest.importorskip("huggingface_hub")
    folder = store.checkpoint(NAME)
    monkeypatch.setattr(package.constants, "HF_HUB_OFFLINE", True)
    package.close_session()
    monkeypatch.setattr(package.constants, "ENDPOINT", "http://127.0.0.1:9")
    assert store.checkpoint(NAME) == store.resolve(REPO) == folder
    (folder / PARTS[1]).unlink()
    with pytest.raises(DownloadError):
        store.checkpoint(NAME)


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.model", *PARTS])
def test_half_a_checkpoint_is_not_taken_for_whole(missing: str, hub: HubAndOllama) -> None:
    folder = store.checkpoint(NAME)
    (folder / missing).unlink()
    assert store.find(NAME) is None
    assert store.list_models() == []
    asked = len(hub.asked)
    assert files_of(store.checkpoint(NAME)) == TAKEN
    assert len(hub.asked) > asked


@pytest.mark.parametrize("find", [store.checkpoint, store.resolve, store.locate])
def test_what_another_tool_left_out_is_fetched_once(
    find: Callable[[str], Path], hub: HubAndOllama, home: Path
) -> None:
    """Weights without what says how to pool them would give other embeddings."""
    folder = store.checkpoint(NAME)
    shutil.rmtree(home / "ingot")  # so that nobody knows which files it has
    (folder / "1_Pooling/config.json").unlink()
    asked = len(hub.asked)
    assert find(NAME) == folder
    assert files_of(folder) == TAKEN
    assert not any(each.path.endswith(".safetensors") for each in hub.asked[asked:])
    asked = len(hub.asked)
    assert find(NAME) == folder
    assert len(hub.asked) == asked
    (folder / "1_Pooling/config.json").unlink()
    assert files_of(find(NAME)) == TAKEN, "what was there and is gone is fetched, too"


def test_a_commit_that_the_hub_forgot_is_used_as_it_is(hub: HubAndOllama, home: Path) -> None:
    folder = store.checkpoint(NAME)
    shutil.rmtree(home / "ingot")
    hub.api.clear()
    asked = len(hub.asked)
    assert store.resolve(NAME) == folder
    assert len(hub.asked) == asked + 1, "nobody waits for a second try"


@pytest.mark.usefixtures("hub")
def test_a_cache_that_cannot_be_written_is_used_as_it_is(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = store.checkpoint(NAME)
    shutil.rmtree(home / "ingot")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "read-only")

    monkeypatch.setattr(hub_module, "write_file", refuse)
    assert store.resolve(NAME) == folder


@pytest.mark.usefixtures("hub")
def test_parts_without_an_index_are_not_taken_for_whole() -> None:
    folder = store.checkpoint(NAME)
    (folder / "model.safetensors.index.json").unlink()
    assert store.find(NAME) is None
    for number, name in enumerate(PARTS):
        (folder / name).rename(folder / ("model.safetensors" if number == 0 else "other"))
    assert store.find(NAME) == folder


def test_config_json_is_linked_last(hub: HubAndOllama) -> None:
    """A download that is killed while files get their names leaves no whole checkpoint."""
    plan = store.plan_pull(NAME)
    assert [file.source.label for file in plan.files][-1] == "config.json"
    assert hub.url


@pytest.mark.usefixtures("hub")
def test_list_and_remove(home: Path) -> None:
    folder = store.checkpoint(NAME)
    (listed,) = store.list_models()
    size = sum(map(len, TAKEN.values()))
    assert (listed.name, listed.path, listed.size, listed.source) == (NAME, folder, size, "hub")
    with pytest.raises(ModelNotFoundError, match="is not in the hub's cache"):
        store.remove(f"{NAME}:Q8_0")
    # The two files of the same content are one blob.
    assert store.remove(NAME) == size - len(b"{}")
    assert store.list_models() == []
    assert not [path for path in home.rglob("blobs/*") if path.is_file()]
    assert not list(home.rglob("snapshots/*"))
    with pytest.raises(ModelNotFoundError, match="is not in the hub's cache"):
        store.remove(NAME)


def test_a_file_and_a_checkpoint_of_one_repository(hub_server: HubAndOllama) -> None:
    hub_server.add_repo(REPO, {**FILES, "tiny-Q8_0.gguf": b"GGUF" + bytes(5000)})
    folder, file = store.checkpoint(NAME), store.pull(NAME)
    assert file == folder / "tiny-Q8_0.gguf"
    assert store.find(NAME) == file
    assert [model.name for model in store.list_models()] == [f"{NAME}/{file.name}", str(folder)]
    said = f"remove them one by one: {NAME}/{file.name}, {folder}"
    with pytest.raises(StoreError, match=f"{said}$"):
        store.remove(NAME)
    assert store.remove(f"{NAME}/{file.name}") == 5004
    assert store.find(NAME) == folder
    assert store.remove(NAME) > 6000
    assert store.find(NAME) is None


def test_the_checkpoint_alone_is_removed_by_its_folder(
    hub_server: HubAndOllama, tmp_path: Path
) -> None:
    hub_server.add_repo(REPO, {**FILES, "tiny-Q8_0.gguf": b"GGUF" + bytes(5000)})
    folder, file = store.checkpoint(NAME), store.pull(NAME)
    elsewhere = tmp_path / folder.relative_to(folder.parents[2])
    shutil.copytree(folder, elsewhere)
    with pytest.raises(ModelNotFoundError):
        store.remove(str(elsewhere))
    assert (elsewhere / "config.json").is_file()
    assert store.remove(str(folder)) > 6000
    assert store.find(NAME) == file
    assert [model.path for model in store.list_models()] == [file]


def test_a_checkpoint_without_a_vocabulary_is_not_downloaded(hub_server: HubAndOllama) -> None:
    files = {name: data for name, data in FILES.items() if name != "tokenizer.model"}
    hub_server.add_repo(REPO, files)
    for ask in (store.checkpoint, store.plan_pull):
        with pytest.raises(ModelNotFoundError, match="no vocabulary that Ingot reads"):
            ask(NAME)


@pytest.mark.parametrize("repo", ["gpt2", "Owner--Model"])
def test_the_name_of_a_checkpoint(repo: str, tmp_path: Path) -> None:
    folder = tmp_path / f"models--{repo}" / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    assert store.checkpoint_name(folder) == repo.rpartition("--")[2]


def test_pull_takes_the_checkpoint_if_there_is_no_gguf_file(hub: HubAndOllama) -> None:
    plan = store.plan_pull(REPO)
    assert plan.choice
    assert plan.choice.startswith("taking the checkpoint, because there is no GGUF file: about")
    assert planned_memory(plan) == plan.memory
    assert not hub.away.asked
    assert files_of(store.pull(REPO)) == TAKEN


def test_a_checkpoint_that_does_not_fit(hub: HubAndOllama, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "available_memory", lambda: 1000)
    with pytest.raises(MemoryShortageError, match=rf"`ingot run {NAME}:q4_k_m` quantizes it"):
        store.pull(NAME)
    assert not hub.away.asked
    assert store.checkpoint(NAME).is_dir()  # to be converted


def test_what_is_no_checkpoint(hub_server: HubAndOllama, tmp_path: Path) -> None:
    hub_server.add_repo("Owner/Tiny-GGUF", {"tiny-Q8_0.gguf": b"GGUF"})
    with pytest.raises(ModelNotFoundError, match=r"needs config\.json and safetensors files"):
        store.checkpoint("hf:Owner/Tiny-GGUF")
    with pytest.raises(StoreError, match="is not a checkpoint"):
        store.checkpoint("hf:Owner/Tiny-GGUF:Q8_0")
    with pytest.raises(ModelNotFoundError, match="is not a folder"):
        store.checkpoint(str(tmp_path / "nowhere"))
    assert store.checkpoint(str(tmp_path)) == tmp_path
    adapter = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"x"}
    hub_server.add_repo("Owner/Adapter", adapter)
    with pytest.raises(ModelNotFoundError, match="has no GGUF file; find a repository"):
        store.resolve("hf:Owner/Adapter")


@pytest.mark.parametrize("name", [f"{NAME}:Q8_0", f"{NAME}/tiny.gguf"])
def test_a_file_is_not_replaced_by_the_checkpoint(name: str, hub: HubAndOllama) -> None:
    with pytest.raises(ModelNotFoundError, match="`ingot pull hf:Owner/Model` downloads its"):
        store.plan_pull(name)
    assert not hub.away.asked


def test_a_checkpoint_runs_by_its_name(llama: HubAndOllama) -> None:
    with LLM(REPO, context=96, threads=1) as llm:
        assert llm.path == store.find(NAME)
        assert llm.file.metadata.string("general.name") == "Model"
        wanted = llm.generate("ABC", max_tokens=20, temperature=0).text
    assert wanted
    asked = len(llama.asked)
    with LLM(NAME, context=96, threads=1) as llm:
        assert llm.generate("ABC", max_tokens=20, temperature=0).text == wanted
    assert len(llama.asked) == asked


@pytest.mark.parametrize("prefix", ["", "hf:"])
def test_a_checkpoint_runs_quantized_by_its_name(
    prefix: str, llama: HubAndOllama, home: Path
) -> None:
    name = f"{prefix}{REPO}:q8_0"
    with LLM(name, context=96, threads=1) as llm:
        path = llm.path
        types = {tensor.type.name for tensor in llm.engine.model.file.tensors.values()}
        assert llm.generate("ABC", max_tokens=20, temperature=0).text
    assert types == {"Q8_0", "F32"}
    assert path.parent == home / "ingot/models"
    assert path.name.startswith("Model-Q8_0-")
    with GgufLoader(path) as loader:
        assert loader.metadata.string("general.name") == "Model"
    asked = len(llama.asked)
    assert locate_quantized(name) == path
    assert len(llama.asked) == asked


def test_a_new_commit_takes_the_place_of_the_quantized_file(llama: HubAndOllama) -> None:
    assert llama.url
    first = locate_quantized(f"{NAME}:q8_0")
    folder = store.find(NAME)
    assert folder
    newer = folder.with_name("1" * 40)
    shutil.copytree(folder, newer)
    (hub_cache.repo_folder(REPO) / "refs/main").write_text(newer.name)
    assert locate_quantized(f"{NAME}:q8_0") == first  # its files are the same
    os.utime(newer / "model.safetensors", ns=(1, 1))
    second = locate_quantized(f"{NAME}:q8_0")
    assert first
    assert second
    assert second != first
    assert not first.exists()


def test_a_type_that_cannot_be_made_is_refused_before_the_download(llama: HubAndOllama) -> None:
    with pytest.raises(QuantError, match="iq2_m needs an importance matrix"):
        locate_quantized(f"{NAME}:iq2_m")
    assert locate_quantized(f"{NAME}:UD-Q4_K_XL") is None  # only a file could be that
    with pytest.raises(ModelNotFoundError, match=rf"`ingot run {NAME}:q8_0` quantizes it"):
        store.resolve(f"{NAME}:UD-Q4_K_XL")
    assert not llama.away.asked


def test_gguf_files_come_before_the_checkpoint(llama: HubAndOllama) -> None:
    llama.add_repo("Owner/Both", {**FILES, "tiny-Q8_0.gguf": b"GGUF" + bytes(5000)})
    for type in ("q8_0", "q4_0"):  # whether it has that one or not
        assert locate_quantized(f"hf:Owner/Both:{type}") is None
    with pytest.raises(ModelNotFoundError, match="has no quantization q4_0"):
        store.resolve("hf:Owner/Both:q4_0")
    store.pull("hf:Owner/Both:q8_0")
    asked = len(llama.asked)
    assert locate_quantized("hf:Owner/Both:q8_0") is None
    assert len(llama.asked) == asked


@pytest.mark.usefixtures("llama")
def test_checkpoints_of_other_kinds_are_not_offered(hub_server: HubAndOllama) -> None:
    folder = store.resolve(NAME)
    config = json.dumps({"architectures": ["SomeVisionModel"]}).encode()
    single = {"model.safetensors": b"\2" + bytes(7) + b"{}", "tokenizer.json": b"{}"}
    hub_server.add_repo("Owner/Pictures", {**single, "config.json": config})
    store.checkpoint("hf:Owner/Pictures")
    assert [model.name for model in store.list_models()] == [NAME, "hf:Owner/Pictures"]
    assert [model.path for model in convert.list_models()] == [folder]
    assert convert.checkpoint_summary(folder) == ("llama", "F32")
