"""The context that a model gets if none is asked for: what it and the memory allow."""

from dataclasses import replace
from pathlib import Path

import pytest

from ingot.engine import EngineOptions
from ingot.engine.model import memory
from ingot.engine.model.plan import ModelPlan, plan_model
from models.tiny_models import Fixture
from tiny_llama import write_tiny_llama

TRAINED = 100_000
ALL = f"context of {TRAINED} tokens, all that the model allows"


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return write_tiny_llama(tmp_path / "long.gguf", keys={"llama.context_length": TRAINED})


def long(name: str, folder: Path) -> Path:
    """A tiny model of a fixture, of a long context."""
    fixture = Fixture.load(name)
    metadata = {**fixture.metadata, "context_length": TRAINED}
    return replace(fixture, metadata=metadata).write(folder / "model.gguf")


def plan(path: Path, **options: int) -> ModelPlan:
    return plan_model(path, EngineOptions(**options))


def test_all_that_the_model_and_the_memory_allow(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert plan(llama).context == TRAINED
    assert plan(llama).remark == ALL
    token = plan(llama, context=32, cache_tokens=32).cache // 32
    monkeypatch.setattr(memory, "available", lambda: 4 * 20_000 * token)
    assert plan(llama).context == 19 * 1024
    assert "the model allows 100000, but there is no memory" in plan(llama).remark
    monkeypatch.setattr(memory, "available", lambda: 0)
    assert plan(llama).context == 8192
    assert plan(llama, context=64).context == 64


def test_a_small_cache_is_the_reason(llama: Path) -> None:
    found = plan(llama, cache_tokens=20_000)
    assert found.context == 19 * 1024
    assert "the model allows 100000, but the cache has no room" in found.remark
    assert plan(llama, cache_tokens=TRAINED).remark == ALL


def test_an_encoder_gets_what_a_step_with_the_whole_text_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = long("modern-bert", tmp_path)
    assert plan(path).remark == ALL
    token = plan(path, context=1).arena
    assert token > 0
    monkeypatch.setattr(memory, "available", lambda: 4 * 20_000 * token)
    assert plan(path).context == 19 * 1024
    assert "there is no memory" in plan(path).remark


def test_states_do_not_grow_with_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = long("mamba", tmp_path)
    monkeypatch.setattr(memory, "available", lambda: 1)
    assert plan(path).remark == plan(path, cache_tokens=64).remark == ALL
