"""Models of the hub, from a server that speaks its protocol."""

import hashlib
import shutil
import sys
from pathlib import Path

import pytest
from model_server import COMMIT, Fault, HubAndOllama

from ingot import store
from ingot.errors import (
    AccessDeniedError,
    DiskSpaceError,
    DownloadError,
    MemoryShortageError,
    MissingPackageError,
    ModelNotFoundError,
    StoreError,
)
from ingot.store import hub as hub_module
from ingot.store import hub_cache
from ingot.store.download import part_of

hub = pytest.importorskip("huggingface_hub", reason="pip install 'ingot-llm[hub]'")
pytest.importorskip("huggingface_hub.constants")

REPO = "Owner/Tiny-GGUF"
API = f"/api/models/{REPO}"


def gguf(seed: str, size: int = 100_000) -> bytes:
    return b"GGUF" + hashlib.shake_128(seed.encode()).digest(size)


FILES = {
    "tiny-F16.gguf": gguf("f16", 400_000),
    "tiny-Q8_0.gguf": gguf("q8", 200_000),
    "tiny-Q4_K_M.gguf": gguf("q4", 100_000),
    "big-Q6_K-00001-of-00002.gguf": gguf("6a", 60_000),
    "big-Q6_K-00002-of-00002.gguf": gguf("6b", 50_000),
    "mmproj-F16.gguf": gguf("eye", 5_000),
    "README.md": b"# Tiny",
}


@pytest.fixture
def server(hub_server: HubAndOllama) -> HubAndOllama:
    """The hub is this server."""
    hub_server.add_repo(REPO, FILES)
    return hub_server


def blob_path(content: bytes) -> str:
    return f"/blob/{hashlib.sha256(content).hexdigest()}"


def test_the_best_quantization_comes_with_its_projector(server: HubAndOllama, home: Path) -> None:
    stages: list[str] = []
    path = store.pull(f"hf:{REPO}", lambda stage, *_: stages.append(stage))
    snapshot = home / f".cache/huggingface/hub/models--Owner--Tiny-GGUF/snapshots/{COMMIT}"
    assert path == snapshot / "tiny-Q8_0.gguf"
    assert path.read_bytes() == FILES["tiny-Q8_0.gguf"]
    assert (snapshot / "mmproj-F16.gguf").read_bytes() == FILES["mmproj-F16.gguf"]
    assert sorted(link.name for link in snapshot.iterdir()) == ["mmproj-F16.gguf", "tiny-Q8_0.gguf"]
    assert stages[0].startswith("taking Q8_0, the best of 4 that fits")
    assert "downloading tiny-Q8_0.gguf" in stages
    for name in (f"hf:{REPO}", REPO, f"{REPO}:q8_0", f"hf:{REPO}/tiny-Q8_0.gguf"):
        assert store.find(name) == store.resolve(name) == path
    assert store.find(f"hf:{REPO}:Q4_K_M") is None
    assert len(server.away.gets(blob_path(FILES["tiny-Q8_0.gguf"]))) == 1


def test_the_hub_itself_knows_what_was_pulled(server: HubAndOllama) -> None:
    assert server.url
    path = store.pull(f"hf:{REPO}:Q8_0")
    cache = hub_cache.config().hub_cache
    assert hub.try_to_load_from_cache(REPO, "tiny-Q8_0.gguf", cache) == str(path)
    (repo,) = hub.scan_cache_dir(cache).repos
    assert repo.repo_id == REPO
    assert not hub.scan_cache_dir(cache).warnings


def test_split_files_come_along(server: HubAndOllama) -> None:
    assert server.url
    path = store.resolve(f"{REPO}:Q6_K")
    assert path.name == "big-Q6_K-00001-of-00002.gguf"
    assert path.read_bytes() == FILES[path.name]
    second = path.with_name("big-Q6_K-00002-of-00002.gguf")
    assert second.read_bytes() == FILES[second.name]
    second.unlink()
    assert store.find(f"{REPO}:Q6_K") is None


def test_a_token_goes_to_the_hub_and_nowhere_else(server: HubAndOllama) -> None:
    store.pull(f"hf:{REPO}:Q4_K_M")
    assert {asked.headers.get("authorization") for asked in server.asked} == {"Bearer hf_secret"}
    assert server.away.asked
    assert all("authorization" not in asked.headers for asked in server.away.asked)


def test_an_interrupted_pull_is_continued(server: HubAndOllama, home: Path) -> None:
    content = FILES["tiny-Q8_0.gguf"]
    server.away.fail(blob_path(content), Fault(cut=70_000), *[Fault(503)] * 5)
    with pytest.raises(DownloadError, match="5 tries failed"):
        store.pull(f"hf:{REPO}:Q8_0")
    assert store.find(f"hf:{REPO}:Q8_0") is None
    assert not list(home.rglob("snapshots/*/*"))
    assert store.pull(f"hf:{REPO}:Q8_0").read_bytes() == content
    last = server.away.gets(blob_path(content))[-1]
    assert last.headers["range"] == f"bytes=70000-{len(content) - 1}"


def test_pull_verifies_what_is_there(server: HubAndOllama) -> None:
    content = FILES["tiny-Q8_0.gguf"]
    path = store.pull(f"hf:{REPO}:Q8_0")
    path.resolve().write_bytes(content[:-1] + b"?")
    assert store.resolve(f"hf:{REPO}:Q8_0").read_bytes() != content
    assert store.pull(f"hf:{REPO}:Q8_0").read_bytes() == content
    assert len(server.away.gets(blob_path(content))) == 2


def test_a_wrong_checksum_leaves_nothing(server: HubAndOllama, home: Path) -> None:
    server.away.fail(blob_path(FILES["tiny-Q8_0.gguf"]), Fault(change=9))
    with pytest.raises(DownloadError, match="another checksum"):
        store.pull(f"hf:{REPO}:Q8_0")
    assert not [path for path in home.rglob("blobs/*") if path.is_file()]


def test_a_plan_downloads_nothing(server: HubAndOllama, home: Path) -> None:
    plan = store.plan_pull(f"hf:{REPO}:Q6_K")
    labels = [file.source.label for file in plan.files]
    assert labels == [
        "big-Q6_K-00001-of-00002.gguf",
        "big-Q6_K-00002-of-00002.gguf",
        "mmproj-F16.gguf",
    ]
    assert plan.size == plan.missing == 60_004 + 50_004 + 5_004
    assert plan.memory > 60_004 + 50_004
    assert not server.away.asked
    assert not list(home.rglob("blobs"))
    part = part_of(plan.files[0].target)
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(60_000))
    assert store.plan_pull(f"hf:{REPO}:Q6_K").missing == plan.size - 60_000


def test_too_little_memory(server: HubAndOllama, monkeypatch: pytest.MonkeyPatch) -> None:
    assert server.url
    monkeypatch.setattr(hub_module, "available_memory", lambda: 1000)
    with pytest.raises(MemoryShortageError, match="name a quantization"):
        store.pull(REPO)


def test_a_full_disk(server: HubAndOllama, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DiskSpaceError):
        store.pull(REPO)
    assert not server.away.asked


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_hub_that_is_busy_is_asked_again(status: int, server: HubAndOllama) -> None:
    server.fail(API, Fault(status, {"Retry-After": "0"}), Fault(status))
    assert store.pull(f"{REPO}:Q4_K_M").is_file()
    assert len(server.gets(API)) == 3


@pytest.mark.parametrize(
    ("fault", "error", "said"),
    [
        (Fault(404, {"X-Error-Code": "RepoNotFound"}), ModelNotFoundError, "no repository"),
        (Fault(401, {"X-Error-Code": "RepoNotFound"}), ModelNotFoundError, "hf auth login"),
        (Fault(401), AccessDeniedError, "hf auth login"),
        (Fault(403, {"X-Error-Code": "GatedRepo"}), AccessDeniedError, "accept its terms"),
        (Fault(403), AccessDeniedError, "hf auth login"),
        (Fault(400), DownloadError, "status 400"),
    ],
)
def test_refusals(fault: Fault, error: type[Exception], said: str, server: HubAndOllama) -> None:
    server.fail(API, fault)
    with pytest.raises(error, match=said) as caught:
        store.pull(f"hf:{REPO}")
    assert "hf_secret" not in str(caught.value)


def test_a_mistyped_path_is_called_a_path_too(server: HubAndOllama) -> None:
    assert server.url
    with pytest.raises(ModelNotFoundError, match="and there is no file 'modles/tiny'"):
        store.resolve("modles/tiny")


def test_a_repository_without_gguf_files(server: HubAndOllama) -> None:
    server.add_repo("Owner/Tiny", {"model.safetensors": b"x"})
    with pytest.raises(ModelNotFoundError, match="`ingot search Tiny`"):
        store.pull("Owner/Tiny")


def test_offline(server: HubAndOllama, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store.pull(f"{REPO}:Q8_0")
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    hub.close_session()
    monkeypatch.setattr(hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    asked = len(server.asked)
    assert store.resolve(REPO) == path
    with pytest.raises(DownloadError):
        store.resolve(f"{REPO}:Q4_K_M")
    assert len(server.asked) == asked


def test_hostile_listings(server: HubAndOllama, home: Path) -> None:
    siblings = server.api[API]["siblings"]
    siblings[:] = [siblings[1]]
    for name in ("../../../evil-Q4_0.gguf", "/etc/evil-Q4_0.gguf", "a\\..\\evil-Q4_0.gguf"):
        siblings.append(siblings[0] | {"rfilename": name})
    for lfs in ({"sha256": "../../evil", "size": 5, "pointerSize": 1},):
        siblings.append(siblings[0] | {"rfilename": "evil-Q5_0.gguf", "lfs": lfs})
    siblings.append(siblings[0] | {"rfilename": "huge-Q5_1.gguf", "size": 1 << 60})
    plan = store.plan_pull(REPO)
    assert [file.source.label for file in plan.files] == ["tiny-Q8_0.gguf"]
    store.pull(REPO)
    assert not [path for path in home.parent.rglob("*evil*") if "hostile" not in path.name]


def test_a_cache_that_cannot_be_written(server: HubAndOllama, home: Path) -> None:
    assert server.url
    (home / ".cache").mkdir()
    (home / ".cache/huggingface").write_text("a file where the folder should be")
    with pytest.raises(StoreError, match="HF_HOME"):
        store.pull(REPO)


def test_a_hostile_commit(server: HubAndOllama) -> None:
    server.api[API]["sha"] = "../../evil"
    with pytest.raises(DownloadError, match="names no commit"):
        store.pull(REPO)


def test_search(server: HubAndOllama) -> None:
    server.add_repo("Other/Thing", {})
    (found,) = store.search("tiny")
    assert (found.name, found.likes, found.updated) == (REPO, 3, "2026-01-02")
    assert "search=tiny" in server.asked[-1].query
    assert "gguf" in server.asked[-1].query
    assert store.search("nothing") == []


def test_without_the_package(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert home.is_dir()
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for ask in (store.resolve, store.pull, store.search, store.plan_pull):
        with pytest.raises(MissingPackageError, match=r"pip install 'ingot-llm\[hub\]'"):
            ask("hf:a/b")


def test_remove(server: HubAndOllama, home: Path) -> None:
    assert server.url
    eight, four = store.pull(f"{REPO}:Q8_0"), store.pull(f"{REPO}:Q4_K_M")
    blob = eight.resolve()
    assert store.remove(f"hf:{REPO}:Q8_0") == len(FILES["tiny-Q8_0.gguf"])
    assert not blob.exists()
    assert not eight.is_symlink()
    assert four.is_file()
    with pytest.raises(ModelNotFoundError, match="is not in the hub's cache"):
        store.remove(f"hf:{REPO}:Q8_0")
    same = four.with_name("the-same-blob.gguf")
    same.symlink_to(four.readlink())
    with pytest.raises(StoreError, match="is several models; remove them one by one: hf:Owner"):
        store.remove(f"hf:{REPO}")
    older = four.parent.parent / "older" / four.name
    older.parent.mkdir()
    older.symlink_to(four.resolve())
    assert store.remove(f"hf:{REPO}:Q4_K_M") == 0
    assert not older.is_symlink()
    assert not four.is_symlink()
    assert same.is_file()
    assert store.remove(f"hf:{REPO}/{same.name}") == len(FILES["tiny-Q4_K_M.gguf"])
    assert [blob.stat().st_size for blob in home.rglob("blobs/*")] == [5_004]
