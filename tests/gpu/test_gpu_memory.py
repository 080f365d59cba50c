"""The memory that a model is planned to take beside its weights and its cache."""

import runpy
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from ingot.backends.gpu import GpuPlan, find_device, imagined_device
from ingot.backends.gpu.planes import packing_bytes
from ingot.backends.gpu.planner import BESIDE
from ingot.backends.gpu.values import Values
from ingot.engine.model.gpu_fit import make_planner
from ingot.gguf import GgufLoader
from ingot.graph.kv_layout import KvLayout
from ingot.graph.kv_type import KvType
from ingot.models import build_graph
from models.tiny_models import Fixture

ROOT = Path(__file__).parents[2]
CONTEXT = 96


@pytest.fixture
def header(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What makes a file's header from a shape and a mix of types."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return runpy.run_path(str(ROOT / "docs" / "make_gpu_table.py"))["header"]


@pytest.mark.parametrize("name", ["qwen2-1.5b", "llama3-8b"])
def test_beside_weights_and_cache(name: str, header: Any, tmp_path: Path) -> None:
    """While weights are sent, and then for steps, besides what is reserved for any model."""
    found = header(name, "Q4_K_M", tmp_path)
    size = sum(tensor.nbytes for tensor in found.tensors.values())
    model = cast(GgufLoader, found)
    planner = make_planner(
        build_graph(model, 8192), model, KvType.F16, imagined_device(), context=8192
    )
    needs = planner.needs(planner.layers)
    assert needs.packing < 0.3 * size
    assert needs.steps - BESIDE < 0.3 * size
    # The largest tensor is no part of a matrix, so it is not copied.
    largest = max(tensor.nbytes for tensor in found.tensors.values())
    assert needs.packing == largest + packing_bytes(1 << 30)


@pytest.mark.parametrize("name", ["llama", "gpt-oss", "deepseek2", "falcon-h1"])
def test_values_that_live_together_are_apart(name: str, tmp_path: Path) -> None:
    """Half floats have half of the room, all of it within the arena."""
    with GgufLoader(Fixture.load(name).write(tmp_path / "m.gguf")) as model:
        graph = build_graph(model, CONTEXT)
        layout = KvLayout.of(graph.kv_layers, KvType.F16, graph.states)
        plan = GpuPlan.of(graph, model, layout, find_device(), context=CONTEXT, tokens=5)
    arena = torch.zeros(plan.values.size * 5 // 4)
    values = Values(plan.values, arena, 5, plan.halves)
    places = {}
    for value in {value for op in plan.graph.ops for value in op.outputs}:
        if value.name in plan.values.slots:
            tensor = values.tensor(value)
            assert tensor.numel() == 5 * value.width
            first = tensor.data_ptr() - arena.data_ptr()
            places[value.name] = first, first + tensor.nbytes
    assert any(name in plan.halves for name in places)
    for one, other in combinations(places, 2):
        slot = plan.values.slots[other]
        if plan.values.slots[one].overlaps(slot.first, slot.last):
            assert places[one][1] <= places[other][0] or places[other][1] <= places[one][0]
