"""Ops are lowered one by one, in any order, and a plan is made once."""

from pathlib import Path

import numpy as np
import pytest

from gpu.gpu_runner import GpuRunner
from ingot.backends.gpu import planner
from ingot.backends.gpu.lowering import Context, Program, launch_of, lower
from ingot.engine.model.loaded_model import LoadedModel
from ingot.gguf import GgmlType, GgufLoader
from ingot.graph.kv_type import KvType
from ingot.models import build_graph
from models.tiny_models import Fixture
from tiny_llama import write_tiny_llama

CONTEXT = 96


def lower_backwards(context: Context) -> Program:
    assert context.plan.mixed_norms
    usual = lower(context).launches
    launches = [launch_of(op, context) for op in reversed(context.plan.ops)]
    flags = [selected for _, selected in usual]
    return Program(list(zip(reversed(launches), flags, strict=True)))


def test_order_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Experts whose mix computes the next norm, and heads that attention stores."""
    fixture = Fixture.load("qwen3moe").first_layers(2)
    found = []
    with GgufLoader(fixture.write(tmp_path / "model.gguf", GgmlType.Q8_0)) as model:
        for _ in range(2):
            graph = build_graph(model, CONTEXT)
            runner = GpuRunner(graph, model, kv_type=KvType.F16, positions=CONTEXT, max_tokens=64)
            found.append(runner.run(fixture.token_ids[:3], chunks=[2], generated=1))
            monkeypatch.setattr("ingot.backends.gpu.backend.lower", lower_backwards)
    np.testing.assert_array_equal(found[0], found[1])


def test_a_model_is_planned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tiny_llama(tmp_path / "model.gguf")
    planned = []
    fuse = planner.fuse
    monkeypatch.setattr(
        planner, "fuse", lambda graph, keep: planned.append(graph) or fuse(graph, keep)
    )
    with LoadedModel(path, context=64, device="cuda"):
        assert len(planned) == 1
