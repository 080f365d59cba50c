"""Models at URLs and in ollama's registry, from a server on this machine."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from model_server import Fault, HubAndOllama

from ingot import store
from ingot.config import config
from ingot.errors import (
    AccessDeniedError,
    ChecksumError,
    DownloadError,
    ModelNotFoundError,
    StoreError,
)

MODEL = b"GGUF" + hashlib.shake_128(b"model").digest(200_000)
PARTS = [b"GGUF" + bytes([part]) * 50_000 for part in range(3)]
LAYERS = {
    "model": MODEL,
    "projector": b"GGUF eye",
    "template": b"{{ .Prompt }}",
    "system": b"Be brief.",
    "params": b'{"temperature": 0.3, "stop": ["<|end|>"]}',
    "license": b"MIT",
}


@pytest.fixture
def url(server: HubAndOllama) -> str:
    server.files["/models/tiny.gguf"] = MODEL
    return f"{server.url}/models/tiny.gguf"


@pytest.fixture
def ollama(server: HubAndOllama) -> str:
    server.add_ollama("library/tiny", "1b", LAYERS)
    return f"ollama:{server.host}/library/tiny:1b"


def test_a_url(server: HubAndOllama, url: str, home: Path) -> None:
    assert store.find(url) is None
    path = store.resolve(url)
    assert path.name == "tiny.gguf"
    assert home / "ingot/models/web" in path.parents
    assert path.read_bytes() == MODEL
    count = len(server.asked)
    assert store.resolve(url) == store.find(url) == path
    assert len(server.asked) == count
    listed = store.list_models()
    assert [(model.name, model.path, model.size) for model in listed] == [(url, path, len(MODEL))]


def test_urls_that_differ_are_different_models(server: HubAndOllama, url: str) -> None:
    server.files["/other/tiny.gguf"] = MODEL + b"other"
    paths = {store.resolve(each) for each in (url, f"{url}?v=2", f"{server.url}/other/tiny.gguf")}
    assert len(paths) == 3


def test_a_url_with_a_checksum(server: HubAndOllama, url: str) -> None:
    right = hashlib.sha256(MODEL).hexdigest()
    with pytest.raises(ChecksumError):
        store.pull(f"{url}#sha256={'0' * 64}")
    assert store.find(url) is None
    path = store.pull(f"{url}#sha256={right}")
    path.write_bytes(MODEL[:-1] + b"?")
    assert store.pull(f"{url}#sha256={right}").read_bytes() == MODEL
    assert server.gets("/models/tiny.gguf")


def test_a_split_model_at_a_url(server: HubAndOllama) -> None:
    for number, part in enumerate(PARTS, 1):
        server.files[f"/big-0000{number}-of-00003.gguf"] = part
    first = store.pull(f"{server.url}/big-00001-of-00003.gguf")
    assert [path.read_bytes() for path in sorted(first.parent.glob("*.gguf"))] == PARTS
    with pytest.raises(StoreError, match="give its first one"):
        store.pull(f"{server.url}/big-00002-of-00003.gguf")
    first.with_name("big-00003-of-00003.gguf").unlink()
    assert store.find(f"{server.url}/big-00001-of-00003.gguf") is None


@pytest.mark.parametrize("tail", ["/", "/..%2f..%2fevil.gguf", "/%2e%2e/%2e%2e", "/.hidden.gguf"])
def test_odd_urls_stay_in_the_folder(tail: str, server: HubAndOllama, home: Path) -> None:
    server.files[tail] = MODEL
    path = store.pull(server.url + tail)
    assert path.name == "model.gguf"
    assert path.resolve().is_relative_to(home / "ingot/models/web")


def test_remove_a_url(url: str) -> None:
    path = store.resolve(url)
    assert store.remove(url) >= len(MODEL)
    assert not path.exists()
    with pytest.raises(ModelNotFoundError):
        store.remove(url)


def test_ollama(server: HubAndOllama, ollama: str, home: Path) -> None:
    path = store.resolve(ollama)
    assert path.name == "tiny-1b.gguf"
    assert path.read_bytes() == MODEL
    settings = store.settings_of(path)
    assert settings
    assert settings.template == "{{ .Prompt }}"
    assert settings.system == "Be brief."
    assert settings.parameters == {"temperature": 0.3, "stop": ["<|end|>"]}
    asked = len(server.asked)
    assert store.resolve(ollama) == path
    assert len(server.asked) == asked
    blobs = home / "ingot/models/ollama/blobs"
    assert sorted(blob.stat().st_size for blob in blobs.iterdir()) == sorted(
        len(content) for kind, content in LAYERS.items() if kind != "license"
    )
    (listed,) = store.list_models()
    assert (listed.name, listed.source) == (ollama, "ingot")
    assert store.settings_of(home / "other.gguf") is None


def test_an_interrupted_layer_is_continued(server: HubAndOllama, ollama: str) -> None:
    server.away.fail(server.blob(MODEL), Fault(cut=100_000), *[Fault(500)] * 5)
    with pytest.raises(DownloadError):
        store.pull(ollama)
    assert store.find(ollama) is None
    assert store.pull(ollama).read_bytes() == MODEL
    last = server.away.gets(server.blob(MODEL))[-1]
    assert last.headers["range"] == f"bytes=100000-{len(MODEL) - 1}"


def test_a_new_version_of_a_tag_replaces_the_old_one(server: HubAndOllama, ollama: str) -> None:
    path = store.pull(ollama)
    server.add_ollama("library/tiny", "1b", {"model": MODEL + b"new", "system": b"Be long."})
    assert store.resolve(ollama).read_bytes() == MODEL
    assert store.pull(ollama) == path
    assert path.read_bytes() == MODEL + b"new"
    settings = store.settings_of(path)
    assert settings
    assert (settings.system, settings.template) == ("Be long.", None)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(404), ModelNotFoundError),
        (Fault(401), AccessDeniedError),
        (Fault(403), AccessDeniedError),
        (Fault(400), DownloadError),
    ],
)
def test_a_registry_that_refuses(
    fault: Fault, error: type[StoreError], server: HubAndOllama, ollama: str
) -> None:
    server.fail("/v2/library/tiny/manifests/1b", fault)
    with pytest.raises(error):
        store.pull(ollama)


def test_a_busy_registry_is_asked_again(server: HubAndOllama, ollama: str) -> None:
    server.fail("/v2/library/tiny/manifests/1b", Fault(503), Fault(429))
    assert store.pull(ollama).is_file()


def _digest(layer: dict[str, object]) -> None:
    layer["digest"] = "sha256:../../../evil"


def _size(layer: dict[str, object]) -> None:
    layer["size"] = 1 << 60


def _text_size(layer: dict[str, object]) -> None:
    layer |= {"size": 1 << 40, "mediaType": "application/vnd.ollama.image.template"}


def _negative(layer: dict[str, object]) -> None:
    layer["size"] = -1


@pytest.mark.parametrize("damage", [_digest, _size, _text_size, _negative, dict.clear])
@pytest.mark.parametrize("number", [0, 2])
def test_hostile_manifests(
    damage: Callable[[dict[str, object]], None], number: int, server: HubAndOllama, home: Path
) -> None:
    manifest = server.add_ollama("library/bad", "x", LAYERS)
    damage(manifest["layers"][number])
    with pytest.raises(StoreError):
        store.pull(f"ollama:{server.host}/library/bad:x")
    assert not (home / "ingot").exists()


@pytest.mark.parametrize("manifest", [[], {}, {"layers": {}}, {"layers": [1]}, "x", None])
def test_manifests_of_other_shapes(manifest: object, server: HubAndOllama) -> None:
    server.api["/v2/library/bad/manifests/x"] = manifest
    with pytest.raises(StoreError, match="damaged"):
        store.pull(f"ollama:{server.host}/library/bad:x")


def test_remove_keeps_the_blobs_of_other_tags(server: HubAndOllama, ollama: str) -> None:
    server.add_ollama("library/tiny", "other", {"model": MODEL})
    other = f"ollama:{server.host}/library/tiny:other"
    store.pull(ollama)
    store.pull(other)
    assert store.remove(ollama) == sum(map(len, LAYERS.values())) - len(MODEL) - len(b"MIT")
    assert store.find(ollama) is None
    assert store.resolve(other).read_bytes() == MODEL
    assert store.remove(other) == len(MODEL)
    assert store.list_models() == []


@pytest.fixture
def ollamas_own(home: Path) -> Path:
    """A model that ollama has downloaded."""
    folder = home / ".ollama/models"
    (folder / "blobs").mkdir(parents=True)
    listed = []
    for kind, content in LAYERS.items():
        digest = hashlib.sha256(content).hexdigest()
        (folder / "blobs" / f"sha256-{digest}").write_bytes(content)
        media = f"application/vnd.ollama.image.{kind}"
        listed.append({"mediaType": media, "digest": f"sha256:{digest}", "size": len(content)})
    manifest = folder / "manifests/registry.ollama.ai/library/tiny/latest"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"layers": listed}))
    return folder


def test_a_model_of_ollama_is_used_where_it_is(ollamas_own: Path) -> None:
    before = sorted(os.walk(ollamas_own))
    path = store.resolve("ollama:tiny")
    assert path.name == "tiny-latest.gguf"
    assert path.resolve().parent == ollamas_own / "blobs"
    settings = store.settings_of(path)
    assert settings
    assert settings.system == "Be brief."
    (listed,) = store.list_models()
    assert (listed.name, listed.source) == ("ollama:tiny:latest", "ollama")
    assert listed.size == sum(map(len, LAYERS.values()))
    with pytest.raises(StoreError, match="`ollama rm tiny:latest`"):
        store.remove("ollama:tiny")
    assert sorted(os.walk(ollamas_own)) == before


def test_half_a_model_of_ollama_is_not_taken_for_whole(ollamas_own: Path) -> None:
    blob = ollamas_own / "blobs" / f"sha256-{hashlib.sha256(MODEL).hexdigest()}"
    blob.write_bytes(MODEL[:-1])
    assert store.find("ollama:tiny") is None
    assert store.list_models() == []


def test_the_environment_says_where_other_tools_keep_models(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert config().hub_cache == home / ".cache/huggingface/hub"
    for variable in ("HF_HUB_CACHE", "OLLAMA_MODELS", "LLAMA_CACHE"):
        monkeypatch.setenv(variable, f"~/{variable}")
    config.cache_clear()
    assert config().hub_cache == home / "HF_HUB_CACHE"
    assert config().ollama_folders == (home / "OLLAMA_MODELS",)
    assert config().llama_cpp_cache == home / "LLAMA_CACHE"


def test_remove_a_file_of_the_cache(home: Path) -> None:
    folder = home / "ingot/models"
    folder.mkdir(parents=True)
    for name in (
        "a-00001-of-00002.gguf",
        "a-00002-of-00002.gguf",
        "a-00001-of-00003.gguf",
        "b.gguf",
    ):
        (folder / name).write_bytes(b"12345")
    assert store.remove("a-00001-of-00002.gguf") == 10
    assert store.remove("b") == 5
    assert [path.name for path in folder.iterdir()] == ["a-00001-of-00003.gguf"]
    for name in ("b", "default", "../models/a-00001-of-00003.gguf"):
        with pytest.raises(ModelNotFoundError):
            store.remove(name)
