"""An empty machine: no models anywhere, a server on this machine, and no waiting between tries."""

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
