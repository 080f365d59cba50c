"""A server with the default model, as a separate process, and clients of it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from serving import PATIENCE, Served, serving


@pytest.fixture(scope="session")
def slots_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where it saves caches."""
    return tmp_path_factory.mktemp("slots")


@pytest.fixture(scope="session")
def server(smollm2_path: Path, slots_folder: Path) -> Iterator[Served]:
    """A server that all tests share."""
    with serving(smollm2_path, "--slot-save-path", slots_folder, "--context", 2048) as served:
        yield served


@pytest.fixture(scope="session")
def http(server: Served) -> Iterator[httpx.Client]:
    """A plain client of it."""
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        yield client
