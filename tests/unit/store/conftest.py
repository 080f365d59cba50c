"""An empty machine: no models anywhere, a server on this machine, and no waiting between tries."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_server import HubAndOllama, serving

from ingot.config import config
from ingot.store import http as web


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home directory in which nobody has downloaded anything."""
    for variable in (
        "XDG_CACHE_HOME",
        "HF_HOME",
        "HF_HUB_CACHE",
        "OLLAMA_MODELS",
        "LLAMA_CACHE",
        "HF_TOKEN",
    ):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("INGOT_CACHE", str(tmp_path / "ingot"))
    config.cache_clear()
    yield tmp_path
    config.cache_clear()


@pytest.fixture
def server(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubAndOllama]:
    """A server that is the hub and ollama's registry."""
    assert home.is_dir()
    monkeypatch.setattr(web, "FIRST_WAIT", 0.0)
    with serving() as started:
        yield started


@pytest.fixture
def environment(server: HubAndOllama, home: Path) -> dict[str, str]:
    """The hub of a process is the server."""
    return {**os.environ, "HF_ENDPOINT": server.url, "HOME": str(home), "HF_HUB_OFFLINE": ""}


@pytest.fixture
def hub_server(server: HubAndOllama, home: Path, monkeypatch: pytest.MonkeyPatch) -> HubAndOllama:
    """The hub of this process is the server, and its token a secret."""
    constants = pytest.importorskip(
        "huggingface_hub.constants", reason="pip install 'ingot-llm[hub]'"
    )
    pattern = server.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", pattern)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    return server
