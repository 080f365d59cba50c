"""A server on the default model, in a process of its own, and clients of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Served, serving


@pytest.fixture(scope="session")
def server(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that all tests share; it has a folder for saved caches."""
    folder = tmp_path_factory.mktemp("slots")
    with serving(smollm2_path, "--slot-save-path", folder, "--context", 2048) as served:
        yield served
