"""No architecture is refused, and whatever one has of operations runs in the interpreter, too.

Planning takes no memory of a device and runs nothing, so it is done for all tiny models, whole.
"""

from collections.abc import Iterator
from dataclasses import fields, replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from gpu import test_gpu_encoder_decoders, test_gpu_encoders, test_gpu_models
from ingot.backends.gpu import GpuPlan, find_device
from ingot.gguf import GgufLoader
from ingot.graph import ops as o
from ingot.graph.fusion import fuse
from ingot.graph.kv_layout import KvLayout
from ingot.graph.kv_type import KvType
from ingot.graph.ops.record import Record
from ingot.models import build_graph
from models.recipes import RECIPES
from models.tiny_models import Fixture

CONTEXT = 96
# With so many layers, in the interpreter.
RUN = {
    **test_gpu_models.FEW,
    **test_gpu_encoders.FEW,
    **dict.fromkeys([*test_gpu_encoder_decoders.FEW, "llama", "bert-rank", "nomic-bert"], 1),
}
# What first layers do not have: those that read the keys of others (cases of operations have them),
# and the ALiBi of a Baichuan, which has it with all of its 40 layers.
ELSEWHERE = {"Rope"}
WHOLE = {"baichuan-13b"}
# What only numbers tell apart, which kernels take as arguments, or sizes.
NUMBERS = {"layer", "kv_layer", "state", "epsilon", "magnitude", "near", "groups_used"}
NUMBERS |= {"scale", "used", "first", "rows", "run", "heads", "kv_heads", "length", "offset"}


def kind(record: Record) -> tuple[Any, ...]:
    """What a launch is decided by: which parts a record has, and its switches."""
    named = ((part.name, getattr(record, part.name)) for part in fields(record))
    found = (_switch(value) for name, value in named if name not in NUMBERS)
    return (type(record).__name__, *found)


def _switch(value: object) -> Any:
    if isinstance(value, Record):
        return kind(value)
    if isinstance(value, tuple):
        return tuple(kind(part) for part in value if isinstance(part, Record)) or bool(value)
    if isinstance(value, Enum | bool):
        return value
    return value is not None and value not in (0, 1)


def kinds(fixture: Fixture, folder: Path) -> set[tuple[Any, ...]]:
    with GgufLoader(fixture.write(folder / "model.gguf")) as model:
        graph = build_graph(model, CONTEXT)
        graphs = [graph, *([graph.encoder] if graph.encoder else [])]
        ops = [op for each in graphs for op in fuse(each).ops]
    return {part for op in ops for part in _parts(op) if part[0] not in ELSEWHERE}


def _parts(op: o.Op) -> Iterator[tuple[Any, ...]]:
    """An operation; the norm of a linear layer's input, which another kernel computes, apart."""
    if isinstance(op, o.FusedLinear) and op.norm:
        yield kind(op.norm)
        op = replace(op, norm=None)
    yield kind(op)


@pytest.mark.parametrize("name", RECIPES)
def test_no_model_is_refused(name: str, tmp_path: Path) -> None:
    """Nor what makes its embeddings."""
    with GgufLoader(Fixture.load(name).write(tmp_path / "model.gguf")) as model:
        for graph in _graphs(model, hidden=not RECIPES[name].ranker):
            layout = KvLayout.of(graph.kv_layers, KvType.F16, graph.states)
            sequences = 0 if graph.hidden or graph.scores else 8
            plan = GpuPlan.of(
                graph, model, layout, find_device(), context=96, tokens=96, sequences=sequences
            )
            assert plan.needs.weights > 0


def _graphs(model: GgufLoader, *, hidden: bool) -> Iterator[Any]:
    yield build_graph(model, CONTEXT)
    if hidden:
        yield build_graph(model, CONTEXT, hidden=True)


def test_every_kind_of_operation_runs_in_a_model(tmp_path: Path) -> None:
    """A model that has one that no other has must be in one of the lists of `RUN`."""
    run = {
        each for name in RUN for each in kinds(Fixture.load(name).first_layers(RUN[name]), tmp_path)
    }
    missing = {
        name: kinds(Fixture.load(name), tmp_path) - run for name in RECIPES if name not in WHOLE
    }
    assert {name: found for name, found in missing.items() if found} == {}
