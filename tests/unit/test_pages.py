"""The README and the pages of docs/: their links lead somewhere, their maps and tables leave
nothing out. `tests/pages` runs their code."""

import re
import subprocess
import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

import ingot
from ingot.cli import COMMANDS
from ingot.engine import EngineOptions

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
README = (ROOT / "README.md").read_text()
NO_CODE = {"__distribution__", "__version__"}
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_reference_has_every_public_name() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    named = re.findall(r"^::: (ingot(?:\.\w+)*)\.(\w+)$", pages, re.M)
    assert sorted(name for _, name in named) == sorted(set(ingot.__all__) - NO_CODE)
    for module, name in named:
        assert getattr(import_module(module), name) is getattr(ingot, name)


def test_links_of_a_built_site_are_checked(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<h1 id="top"></h1><a href="other.html#here">x</a>')
    (tmp_path / "other.html").write_text('<p id="here"></p><a href="index.html#top">x</a>')
    check = [sys.executable, str(ROOT / "docs" / "site" / "check_links.py"), str(tmp_path)]
    assert subprocess.run(check, capture_output=True, check=False).returncode == 0
    (tmp_path / "other.html").write_text('<img src="none.png"><a href="index.html#end">x</a>')
    ran = subprocess.run(check, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stdout.splitlines() == [
        "index.html: other.html#here: no such anchor",
        "other.html: index.html#end: no such anchor",
        "other.html: none.png: no such file",
    ]


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
