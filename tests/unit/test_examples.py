"""The examples run as their first lines say."""

import subprocess
import sys
from ast import literal_eval
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


def test_async_answers(model: Path) -> None:
    *answers, count = run("async_answers.py", model).splitlines()
    assert sorted(answer.partition(":")[0] for answer in answers) == ["Ada", "Ben", "Cleo", "Dan"]
    assert "Ada: The capital of France is Paris." in answers
    tokens, steps = (int(word) for word in count.split() if word.isdigit())
    assert tokens > steps  # they were written together


def test_many_prompts(model: Path) -> None:
    lines = run("many_prompts.py", model).splitlines()
    assert len(lines) == 8
    assert lines[:2] == ["France: Paris", "Germany: Berlin"]


def test_logits_processor(model: Path) -> None:
    free, bound = run("logits_processor.py", model).rstrip().split(" ha", 2)[1:]
    assert "e" in free
    assert "e" not in bound


def test_embeddings_search(model: Path) -> None:
    assert model.is_file()  # the default model, which the example looks for itself
    found = run("embeddings_search.py").splitlines()
    assert len(found) == 4
    assert "pasta" in found[0]
    assert "Mars" in run("embeddings_search.py", "A rocket flies to the moon.").splitlines()[0]


def test_best_of_n(model: Path) -> None:
    shown = [line.partition(" ") for line in run("best_of_n.py", model).splitlines()]
    ranks = [float(rank) for rank, _, _ in shown]
    texts = [literal_eval(text) for _, _, text in shown]
    assert ranks == sorted(ranks)
    assert len(texts) == 4
    assert len({text[:4] for text in texts}) == 1  # they have their beginning in common
    assert len(set(texts)) > 1


def test_every_example_is_tested() -> None:
    here = Path(__file__).read_text()
    assert all(f'"{path.name}"' in here for path in EXAMPLES.glob("*.py"))
