"""The examples run as their first lines say."""

import subprocess
import sys
from pathlib import Path

import pytest

from ingot import GgufLoader, store
from ingot.gguf import GgmlType

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def model() -> Path:
    path = store.find(store.DEFAULT)
    if path is None:
        pytest.skip("the default model is not here: ingot pull")
    return path


def run(name: str, *arguments: object) -> str:
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_look_inside(model: Path) -> None:
    shown = run("look_inside.py", model)
    assert shown.startswith("llama with 272 tensors\ntoken_embd.weight Q8_0 (49152, 576) ")


def test_tokenize_chat(model: Path) -> None:
    ids, *text = run("tokenize_chat.py", model).splitlines()
    assert ids.startswith("[1, 9690, 198, ")
    assert "What does <|im_end|> do?<|im_end|>" in text


def test_requantize(model: Path, tmp_path: Path) -> None:
    target = tmp_path / "new.gguf"
    assert run("requantize.py", model, target, "Q4_0") == f"{target}\n"
    with GgufLoader(model) as old, GgufLoader(target) as new:
        assert list(new.tensors) == list(old.tensors)
        assert new.tensors["blk.0.attn_q.weight"].type == GgmlType.Q4_0
        assert new.tensors["output_norm.weight"].type == GgmlType.F32
        assert set(old.metadata) - set(new.metadata) == {"general.file_type"}
        assert list(new.metadata["tokenizer.ggml.merges"]) == list(
            old.metadata["tokenizer.ggml.merges"]
        )


def test_quick_start(model: Path) -> None:
    text, *_, end, likeliest = run("quick_start.py", model).splitlines()
    assert text.startswith(" Paris")
    assert end == "length 16 tokens"
    assert likeliest.endswith("' Paris'")


def test_structured(model: Path) -> None:
    (shown,) = run("structured.py", model).splitlines()
    assert shown.startswith(("Review(mood='", "not finished: {"))


def test_streaming(model: Path) -> None:
    assert model.is_file()  # the default model, which the example looks for itself
    assert "Paris" in run("streaming.py", "What is the capital of France?")


def test_every_example_is_tested() -> None:
    here = Path(__file__).read_text()
    assert all(f'"{path.name}"' in here for path in EXAMPLES.glob("*.py"))
