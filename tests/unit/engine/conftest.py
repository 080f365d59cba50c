"""A tiny model that engine tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ingot import LLM
from tiny_llama import write_tiny_llama


@pytest.fixture(scope="package")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A llama of two layers and 256 positions."""
    return write_tiny_llama(tmp_path_factory.mktemp("engine") / "tiny.gguf")


@pytest.fixture
def llm(tiny: Path) -> Iterator[LLM]:
    """It, open."""
    with LLM(tiny, threads=1) as opened:
        yield opened
