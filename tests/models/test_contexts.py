"""How a network depends on the context that is asked for, and on the window that a file gives."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingot.api import LLM
from ingot.errors import ModelError
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph
from ingot.graph import ops as o
from ingot.models import build_graph
from models.tiny_models import Fixture

ORIGINAL = 64  # tokens that the short factors are for


def ropes(graph: ComputationGraph) -> set[tuple[tuple[float, ...], float]]:
    turns = [op for op in graph.ops if isinstance(op, o.Rope)]
    return {(turn.frequencies, turn.magnitude) for turn in turns}


def speeds(name: str, fixture: Fixture) -> tuple[float, ...]:
    factors = fixture.constants[f"rope_factors_{name}.weight"].tolist()
    return tuple(500.0 ** (-pair / 6) / factor for pair, factor in enumerate(factors))


@pytest.mark.parametrize(
    ("context", "name"),
    [(1, "short"), (ORIGINAL, "short"), (ORIGINAL + 1, "long"), (None, "long"), (1 << 20, "long")],
)
def test_factors_for_short_and_long_contexts(
    context: int | None, name: str, tmp_path: Path
) -> None:
    fixture = Fixture.load("phi3-long")
    with GgufLoader(fixture.write(tmp_path / "model.gguf")) as model:
        ((found, magnitude),) = ropes(build_graph(model, context))
    assert found == pytest.approx(speeds(name, fixture), rel=1e-6)
    assert magnitude == pytest.approx(fixture.metadata["rope.scaling.attn_factor"])
    assert magnitude > 1.1


def test_the_context_of_an_open_model_chooses(tmp_path: Path) -> None:
    path = Fixture.load("phi3-long").write(tmp_path / "model.gguf")
    with LLM(path, threads=1, context=ORIGINAL) as short, LLM(path, threads=1) as long:
        assert ropes(short.graph) != ropes(long.graph)
        assert short.context == ORIGINAL
        assert long.context == 256


@pytest.mark.parametrize("name", ["short", "long"])
def test_factors_that_are_not_one_for_each_pair(name: str, tmp_path: Path) -> None:
    fixture = Fixture.load("phi3-long")
    key = f"rope_factors_{name}.weight"
    spoiled = replace(fixture, constants={**fixture.constants, key: fixture.constants[key][:-1]})
    path = spoiled.write(tmp_path / "model.gguf")
    with GgufLoader(path) as model, pytest.raises(ModelError, match=f"{key} must hold 6 positive"):
        build_graph(model, ORIGINAL + (name == "long"))


def windows(changes: dict[str, Any], path: Path) -> list[int]:
    fixture = Fixture.load("phi3")
    changed = replace(fixture, metadata={**fixture.metadata, **changes})
    with GgufLoader(changed.write(path)) as model:
        return [layer.window for layer in build_graph(model).kv_layers]


@pytest.mark.parametrize(("window", "seen"), [(0, 0), (1, 1), (255, 255), (256, 0), (1 << 18, 0)])
def test_a_window_as_long_as_the_context_is_none(window: int, seen: int, tmp_path: Path) -> None:
    assert windows({"attention.sliding_window": window}, tmp_path / "model.gguf") == [seen] * 3


def test_a_window_that_is_no_number_of_tokens(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"phi3.attention.sliding_window is -1; it must be 0 or"):
        windows({"attention.sliding_window": -1}, tmp_path / "model.gguf")


def test_a_factor_without_a_kind_is_linear(tmp_path: Path) -> None:
    fixture = Fixture.load("llama-linear")
    keys = dict(fixture.metadata)
    del keys["rope.scaling.type"]
    with (
        GgufLoader(fixture.write(tmp_path / "said.gguf")) as said,
        GgufLoader(replace(fixture, metadata=keys).write(tmp_path / "left.gguf")) as left_out,
    ):
        assert ropes(build_graph(said)) == ropes(build_graph(left_out))


@pytest.mark.parametrize(
    ("scale", "context", "scaled"), [(0.1, 129, True), (0.1, 128, False), (0.0, 256, False)]
)
def test_queries_are_scaled_in_contexts_longer_than_the_original(
    scale: float, context: int, scaled: bool, tmp_path: Path
) -> None:
    """In shorter ones nothing would change, and a GPU runs them."""
    fixture = Fixture.load("mistral3")
    keys = {**fixture.metadata, "attention.temperature_scale": scale}
    with GgufLoader(replace(fixture, metadata=keys).write(tmp_path / "model.gguf")) as model:
        ops = build_graph(model, context).ops
    assert any(isinstance(op, o.Temper) for op in ops) == scaled


def test_attention_in_chunks_in_contexts_longer_than_one(tmp_path: Path) -> None:
    """Three of four layers see the tokens of their chunk of 8192, the others everything."""
    fixture = Fixture.load("llama4")
    for context, chunks in ((8192, [0] * 5), (8193, [8192, 8192, 8192, 0, 8192])):
        keys = {**fixture.metadata, "context_length": context}
        with GgufLoader(replace(fixture, metadata=keys).write(tmp_path / "model.gguf")) as model:
            attends = [op for op in build_graph(model).ops if isinstance(op, o.Attend)]
        assert [op.window for op in attends] == chunks
        assert [op.chunked for op in attends] == [chunk > 0 for chunk in chunks]


def test_several_experts_whose_inputs_would_be_weighed(tmp_path: Path) -> None:
    fixture = Fixture.load("llama4")
    keys = {**fixture.metadata, "expert_used_count": 2}
    path = replace(fixture, metadata=keys).write(tmp_path / "model.gguf")
    with pytest.raises(ModelError, match=r"llama4\.expert_used_count is 2; only 1 is supported"):
        LLM(path, threads=1)
