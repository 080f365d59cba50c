"""The examples in docstrings print what they say, on the default model."""

import doctest
from collections.abc import Iterator
from pathlib import Path

import pytest

import ingot.api
import ingot.chat
from ingot import LLM

FOUND = [
    found
    for module in (ingot.api, ingot.chat)
    for found in doctest.DocTestFinder(exclude_empty=True).find(module)
    if found.examples
]


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> Iterator[LLM]:
    with LLM(smollm2_path) as opened:
        yield opened


@pytest.mark.parametrize("found", FOUND, ids=lambda found: found.name)
def test_docstring(found: doctest.DocTest, llm: LLM, tmp_path: Path) -> None:
    """Each finds `llm`, the default model, and `folder`, an empty one."""
    found.globs |= {"llm": llm, "folder": tmp_path}
    said: list[str] = []
    failed, _ = doctest.DocTestRunner(verbose=False).run(found, out=said.append)
    assert not failed, "".join(said)


def test_the_front_is_shown() -> None:
    shown = {found.name for found in FOUND}
    assert {"ingot.api.LLM.generate", "ingot.api.LLM.chat", "ingot.chat.ChatSession"} <= shown
