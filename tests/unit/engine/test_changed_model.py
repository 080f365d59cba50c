"""A model's file that somebody changes while it is in use: its requests end with an error that
says so, other models go on, and opening it again works."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingot import LLM
from ingot.engine.model import loaded_model
from ingot.errors import ModelChangedError
from tiny_llama import write_tiny_llama

PATIENCE = 300
LONG = {"keys": {"llama.context_length": 4096}}
LETTER = {97: 100.0}  # a token that is a piece of text at once


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_tiny_llama(tmp_path / "model.gguf", **LONG)


@pytest.fixture
def llm(path: Path) -> Iterator[LLM]:
    with LLM(path, threads=2) as opened:
        yield opened


def text(llm: LLM) -> str:
    return llm.generate("abc", max_tokens=8, temperature=0, ignore_eos=True).text


def weights_of(path: Path) -> tuple[int, int]:
    """Where the weights begin and the file ends."""
    with LLM(path, threads=1) as llm:
        return min(tensor.offset for tensor in llm.file.tensors.values()), path.stat().st_size


def write_in_place(path: Path) -> None:
    """Put other numbers where the weights are; the header stays as it is."""
    start, end = weights_of(path)
    with path.open("r+b") as file:
        file.seek(start)
        file.write(np.random.default_rng(1).integers(0, 60, end - start, np.uint8).tobytes())
    # Later than the clock of the file system can miss.
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 10**9))


def cut(path: Path) -> None:
    os.truncate(path, 100)


def replace(path: Path, other: Path) -> None:
    other.rename(path)


@pytest.mark.parametrize(("change", "said"), [(cut, "became shorter"), (write_in_place, "written")])
def test_a_stream_ends_with_an_error_and_another_model_goes_on(
    llm: LLM, path: Path, tmp_path: Path, change: object, said: str
) -> None:
    assert callable(change)
    other = write_tiny_llama(tmp_path / "other.gguf", **LONG)
    alone = text(llm)
    with LLM(other, threads=2) as bystander:
        reading = bystander.stream("abc", max_tokens=4000, logit_bias=LETTER)
        running = llm.stream("abc", max_tokens=4000, logit_bias=LETTER)
        assert next(running) == next(reading) == "a"
        change(path)
        with pytest.raises(ModelChangedError, match=f"model.gguf .*{said}"):
            list(running)
        assert next(reading) == "a"
        assert text(bystander) == alone
        reading.cancel()
    for _ in range(2):  # the engine lives, and says the same to all who come
        with pytest.raises(ModelChangedError, match=said):
            text(llm)
    assert llm.engine.stats.running == 0
    assert llm.engine.change is not None


def test_it_can_be_opened_again(llm: LLM, path: Path) -> None:
    before = text(llm)
    cut(path)
    with pytest.raises(ModelChangedError):
        text(llm)
    llm.close()
    write_tiny_llama(path, **LONG)
    with LLM(path, threads=1) as again:
        assert text(again) == before


def test_all_requests_that_run_end(llm: LLM, path: Path) -> None:
    running = [llm.stream("abc", max_tokens=4000, logit_bias=LETTER) for _ in range(3)]
    for request in running:
        next(request)
    cut(path)
    for request in running:
        with pytest.raises(ModelChangedError):
            request.result(PATIENCE)


def test_a_vocabulary_stays_what_it_was(llm: LLM, path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\xff" * 2000)
    assert llm.tokenizer.decode(llm.tokenizer.encode("abc")[1:]) == "abc"
    cut(path)
    assert llm.tokenizer.encode("abc") == [256, 97, 98, 99]


@pytest.mark.parametrize("change", [cut, write_in_place])
def test_weights_that_were_read_do_not_change(path: Path, change: object) -> None:
    assert callable(change)
    with LLM(path, threads=1, weights="read") as llm:
        before, vector = text(llm), llm.embed("abc")
        change(path)
        assert text(llm) == before
        assert np.array_equal(llm.embed("abc"), vector)
        assert llm.engine.change is None


def test_a_file_in_its_place_leaves_the_running_model_alone(
    llm: LLM, path: Path, tmp_path: Path
) -> None:
    before = text(llm)
    other = write_tiny_llama(tmp_path / "other.gguf", layers=1, **LONG)
    running = llm.stream("abc", max_tokens=8, temperature=0, ignore_eos=True)
    pieces = [next(running)]
    replace(path, other)
    assert "".join([*pieces, *running]) == text(llm) == before
    assert llm.engine.is_replaced
    assert llm.engine.change is None
    with LLM(path, threads=1) as new:
        assert new.graph.kv_layers != llm.graph.kv_layers
        assert text(new) != before


def test_embeddings_and_saved_texts(llm: LLM, path: Path, tmp_path: Path) -> None:
    llm.embed("abc")
    cut(path)
    with pytest.raises(ModelChangedError):
        llm.embed("abc")
    with pytest.raises(ModelChangedError):
        llm.engine.save("abc" * 20, tmp_path / "saved")
    with pytest.raises(ModelChangedError):
        assert llm.engine.model.fingerprint
    assert not (tmp_path / "saved").exists()


def test_a_draft_model_that_changes_ends_what_needs_it(path: Path, tmp_path: Path) -> None:
    draft = write_tiny_llama(tmp_path / "draft.gguf", **LONG)
    with LLM(path, threads=1, draft=draft) as llm:
        text(llm)
        cut(draft)
        with pytest.raises(ModelChangedError, match=r"draft\.gguf became shorter"):
            text(llm)
        assert llm.engine.change is not None


def test_a_file_that_changes_while_it_is_opened(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = loaded_model.build_graph

    def slowly(*arguments: Any, **options: Any) -> object:
        cut(path)
        return build(*arguments, **options)

    monkeypatch.setattr(loaded_model, "build_graph", slowly)
    with pytest.raises(ModelChangedError, match="became shorter"):
        LLM(path, threads=1)
