"""The Python code of every page runs, block after block; later ones use names of earlier ones.

A page finds the files that `prepared` writes, and two pages a server. Blocks for hardware or
packages that are not here are listed, and the names they use are checked.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from blocks import PAGES, ROOT, Block, python_blocks
from names_of_code import faults
from prepared import PREPARED, SERVED

from ingot import LLM
from ingot.config import config
from server.serving import serving

ADDRESS = "http://127.0.0.1:8080"  # of the server in examples
# Pages whose code does not run, because it needs a GPU, or a Ray cluster and a bucket.
NOT_RUN = {"docs/gpu.md", "docs/ray.md"}
PARTS_OF_FILES = {"CONTRIBUTING.md"}  # tests/models/test_contributing.py compares them
CHECKED = [block for page in sorted(NOT_RUN) for block in python_blocks(page)]
# What the code of a page leaves behind or says.
LEFT = {"README.md": "france.json", "docs/adapters.md": "peft-folder"}
SAID = {
    "docs/engine.md": ["It is sunny.", "get_weather {'city': 'Rome'}"],
    "docs/migration.md": ["It is sunny.\n" * 2],
    "docs/models.md": ["ollama:llama3.2:3b", "hf:Qwen/Qwen3-4B-GGUF"],
    "docs/server.md": ["It scatters blue light.It scatters blue light.\nIt scatters blue light.\n"],
    "docs/tutorial.md": ["length"],
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home without models; engines have one thread, which waits for no other."""
    for name in ("INGOT_CACHE", "HF_HUB_CACHE", "OLLAMA_MODELS", "LLAMA_CACHE"):
        folder = {"HF_HUB_CACHE": "hub", "OLLAMA_MODELS": "ollama"}.get(name, name.lower())
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("INGOT_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    config.cache_clear()
    yield tmp_path
    config.cache_clear()


@pytest.mark.parametrize("page", PREPARED)
@pytest.mark.filterwarnings("ignore:Exception ignored in. <socket")  # of clients left open
def test_the_code_of_a_page_runs(page: str, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    PREPARED[page](home)
    names: dict[str, object] = {"__name__": "page"}
    with contextlib.ExitStack() as stack:
        url = ADDRESS
        if page in SERVED:
            url = stack.enter_context(serving("model.gguf", "--threads", 1, "-c", 2048)).url
        ran = python_blocks(page)
        for block in ran:
            lines = "\n" * block.line + block.text.replace(ADDRESS, url)
            exec(compile(lines, page, "exec"), names)
        assert ran
        if isinstance(llm := names.get("llm"), LLM):
            llm.close()
    said = capfd.readouterr().out
    for text in SAID.get(page, []):
        assert text in said
    if page in LEFT:
        assert (home / LEFT[page]).exists()


def test_every_page_with_code_is_run_or_says_why_not() -> None:
    with_code = {block.page for page in PAGES for block in python_blocks(str(page))}
    assert with_code == PREPARED.keys() | NOT_RUN | PARTS_OF_FILES
    assert not PREPARED.keys() & NOT_RUN


def test_no_block_is_overlooked() -> None:
    """By a fence that is written in another way."""
    for page in PAGES:
        fences = re.findall(r"^ *(?:```+|~~~+) *(?:python|py|pycon)\b", page.read_text(), re.M)
        assert len(fences) == len(python_blocks(str(page))), page.name


@pytest.mark.filterwarnings("ignore")  # where Ray is installed, it is imported
@pytest.mark.parametrize("block", CHECKED, ids=str)
def test_names_in_code_that_does_not_run_exist(block: Block) -> None:
    assert faults(block.text) == []


@pytest.mark.filterwarnings("ignore")  # as above
@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("from ingot import LLMM", "ingot has no LLMM"),
        ("from ingot.nothing import LLM", "ingot.nothing has no LLM"),
        ("from ingot import LLM\nLLM('m', gpu_layer=3)", "LLM has no parameter gpu_layer"),
        ("from ingot import LLM\nLLM('m', 'n')", "LLM: too many positional arguments"),
        ("from ingot import LLM\nLLM.opened('m')", "LLM has no opened"),
        ("from ingot import store\nstore.find_all()", "store has no find_all"),
        ("from ingot import store\nstore.resolve(1, x=2)", "store.resolve has no parameter x"),
        ("llm.generate('a')", "llm is not defined"),
        ("from ingot.ray import Scaling", "ingot.ray has no Scaling"),
        ("from ingot.ray import Scale\nScale(gpu=1)", "Scale has no parameter gpu"),
        ("from ingot.ray import app, AppConfig\napp(AppConfig(model=[]))", "parameter model"),
        ("from ingot.ray import batch_inference as b\nb([], modl='x')", "b has no parameter modl"),
    ],
)
def test_a_name_that_does_not_exist_is_found(code: str, fault: str) -> None:
    assert any(fault in found for found in faults(code))


def test_code_that_is_right_has_no_fault() -> None:
    right = """
from ingot import LLM, store
from somewhere_else import anything
llm = LLM("m", device="cuda", threads=2)
for model in store.list_models():
    print(model.name, anything.can(be="here"), llm.generate("a", temperature=1).text)
squares = {n: [n * m for m in range(3)] for n in range(3)}
"""
    assert faults(right) == []
    assert (ROOT / "docs").is_dir()
