"""The README and the pages of docs/: their code runs, their links lead somewhere, their maps and
tables leave nothing out."""

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from ingot.cli import COMMANDS
from ingot.config import config
from ingot.engine import EngineOptions
from tiny_llama import write_tiny_llama

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
README = (ROOT / "README.md").read_text()
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Models that are opened as a page opens them wait for no other thread."""
    monkeypatch.setenv("INGOT_THREADS", "1")
    config.cache_clear()
    yield
    config.cache_clear()


@pytest.mark.usefixtures("one_thread")
def test_the_code_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny_llama(tmp_path / "model.gguf", keys={"llama.context_length": 4096})
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)
    assert len(blocks) >= 6
    names: dict[str, object] = {"__name__": "readme"}
    for block in blocks:  # one after the other: later ones use what the first imports
        exec(compile(block, "README.md", "exec"), names)
    assert (tmp_path / "france.json").is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if link.startswith("https://"):
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_folder_is_on_the_maps() -> None:
    folders = [path.parent.name for path in (ROOT / "src" / "ingot").glob("*/__init__.py")]
    assert len(folders) > 10
    picture = ARCHITECTURE.partition("```\n")[2].partition("```\n")[0]
    for folder in folders:
        assert f"src/ingot/{folder}/ " in README
        assert f" {folder}/ " in picture


def test_every_command_is_named() -> None:
    commands = re.search(r"\| cli/(.*?)\+---", ARCHITECTURE, re.S)
    assert commands is not None
    for name in COMMANDS:
        assert f"ingot {name} " in README
        assert re.search(rf"\b{name}\b", commands[1])


def test_every_option_of_an_engine_is_explained() -> None:
    engine = (ROOT / "docs" / "engine.md").read_text()
    for option in fields(EngineOptions):
        assert f"| `{option.name}` |" in engine


def test_make_bench_runs_what_the_page_says() -> None:
    target = (ROOT / "Makefile").read_text().partition("\nbench:")[2].partition("\n\n")[0]
    page = (ROOT / "docs" / "performance.md").read_text().partition("\n## Starting")[2]
    named = re.findall(r"`python benchmarks/(\w+)\.py`", page)
    assert sorted(named) == sorted(re.findall(r"benchmarks/(\w+)\.py", target))
    assert named
