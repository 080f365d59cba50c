"""A model in two parts computes what it computes whole, wherever it is cut."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingot.backends.cpu import CpuBackend
from ingot.backends.reference import Cache, Reference
from ingot.backends.split import PartLayout, SplitBackend
from ingot.errors import GraphError
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph
from ingot.graph import ops as o
from ingot.graph.cut import cut, cut_all, cut_places, layer_count
from ingot.graph.kv_layout import KvLayout
from ingot.graph.kv_type import KvType
from ingot.models import build_graph
from models.recipes import RECIPES
from models.recipes_encoder_decoders import ENCODER_DECODERS
from models.recipes_encoders import ENCODERS
from models.tiny_models import Fixture
from run_batches import Runner

CONTEXT = 96
DECODERS = [name for name in RECIPES if name not in {*ENCODERS, *ENCODER_DECODERS}]


class Parts(SplitBackend):
    """What the runner spoils, too."""

    @property
    def pools(self) -> list[Any]:
        return [pool for part, _ in self._parts for pool in part.pools]  # type: ignore[attr-defined]


class SplitRunner(Runner):
    """A model that is cut after so many layers each."""

    def __init__(self, graph: ComputationGraph, model: GgufLoader, *places: int) -> None:
        self.places = places
        super().__init__(graph, model, kv_type=KvType.F16, positions=CONTEXT, sequences=2)

    def make_backend(
        self,
        graph: ComputationGraph,
        model: GgufLoader,
        layout: KvLayout,
        **sizes: Any,
    ) -> Parts:
        made: list[Any] = []
        for part in cut_all(graph, self.places):
            own = PartLayout.of(part, layout)
            made.append((CpuBackend(part, model, own.own, precision=self.precision, **sizes), own))
        return Parts(made)


def cuts(graph: ComputationGraph) -> list[int]:
    """After how many layers it can be cut: everywhere, but not where keys are shared across, or
    the positions that an indexer chooses."""
    places = [op for op in graph.ops if isinstance(op, o.WriteKv | o.Attend)]
    chosen = {
        v: op.layer for op in graph.ops if isinstance(op, o.ChoosePositions) for v in op.outputs
    }
    found = []
    for layers in range(1, layer_count(graph)):
        sides: list[set[int]] = [set(), set()]
        for op in places:
            sides[op.layer >= layers].add(op.kv_layer)
        if sides[0] & sides[1]:
            with pytest.raises(GraphError, match="read keys and values of those"):
                cut(graph, layers)
        elif any(
            chosen[op.chosen] < layers <= op.layer
            for op in places
            if isinstance(op, o.Attend) and op.chosen
        ):
            with pytest.raises(GraphError, match="more than one value crosses the cut"):
                cut(graph, layers)
        else:
            found.append(layers)
    assert found == cut_places(graph) != []
    return found


@pytest.fixture(params=DECODERS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(name: str, tmp_path: Path) -> GgufLoader:
    return GgufLoader(Fixture.load(name).write(tmp_path / "model.gguf"))


def test_every_cut(name: str, model: GgufLoader) -> None:
    """A prompt in pieces and single tokens, to the last bit."""
    ids = Fixture.load(name).token_ids
    graph = build_graph(model, CONTEXT)
    whole = Runner(graph, model, kv_type=KvType.F16, positions=CONTEXT)
    expected = whole.run(ids, [17, 20], generated=3)
    for layers in cuts(graph):
        split = SplitRunner(graph, model, layers)
        np.testing.assert_array_equal(split.run(ids, [17, 20], generated=3), expected)
    split = SplitRunner(graph, model, *cuts(graph))
    np.testing.assert_array_equal(split.run(ids, [17, 20], generated=3), expected)


def test_blocks_are_those_of_the_whole(name: str, model: GgufLoader) -> None:
    """Read on the one, written on the other, copied: the same bytes, the same text."""
    ids = Fixture.load(name).token_ids
    graph = build_graph(model, CONTEXT)
    whole = Runner(graph, model, kv_type=KvType.F16, positions=CONTEXT, sequences=2)
    places = cuts(graph)
    split = SplitRunner(graph, model, places[len(places) // 2])
    for runner in (whole, split):
        for pool in runner.backend.pools:
            pool[:] = 0  # of the states of runs that were passed, nothing is written
        runner.step({"text": ids[:40]})
    layout = KvLayout.of(graph.kv_layers, KvType.F16, graph.states)
    tables = whole.sequences["text"].tables
    for group, found in enumerate(layout.groups):
        for index in tables[group]:
            if index < 0:
                continue
            block = whole.backend.read_block(group, index)
            assert len(block) == found.block_bytes
            np.testing.assert_array_equal(split.backend.read_block(group, index), block)
            split.backend.write_block(group, index, np.zeros_like(block))
            assert not split.backend.read_block(group, index).any()
            split.backend.write_block(group, index, block)
    expected = whole.step({"text": ids[40:45]})["text"]
    np.testing.assert_array_equal(split.step({"text": ids[40:45]})["text"], expected)
    split.backend.copy_block(0, int(tables[0][0]), int(tables[0][-1]))
    np.testing.assert_array_equal(
        split.backend.read_block(0, int(tables[0][-1])),
        split.backend.read_block(0, int(tables[0][0])),
    )


def test_reference(tmp_path: Path) -> None:
    """The truth, in two parts."""
    fixture = Fixture.load("gemma2")
    with GgufLoader(fixture.write(tmp_path / "model.gguf")) as model:
        graph = build_graph(model, CONTEXT)
        halves = cut(graph, 1)
        first, second = Reference(halves.first, model), Reference(halves.second, model)
        caches = Cache(), Cache()
        rows = []
        for ids in (fixture.token_ids[:5], fixture.token_ids[5:7]):
            hidden = first.forward(ids, caches[0])
            rows.append(second.forward(ids, caches[1], rows=hidden))
        expected = Reference(graph, model).forward(fixture.token_ids[:7])
        np.testing.assert_allclose(np.concatenate(rows), expected, rtol=1e-4, atol=1e-5)


def test_what_cannot_be_cut() -> None:
    """A part without layers; a value beside the residual stream."""
    stream, other, summed, out = (o.Value(name, 4) for name in ("x", "y", "sum", "out"))
    table = o.Weight("token_embd.weight", (8, 4))
    graph = ComputationGraph(
        ops=(
            o.Embed(weight=table, out=stream),
            o.Norm(source=stream, out=other, weight=None, kind=o.NormKind.RMS, epsilon=1e-6),
            o.Add(left=stream, right=other, out=summed, layer=1),
            o.Select(source=summed, out=out),
        ),
        logits=out,
        kv_layers=(),
        context_length=8,
    )
    with pytest.raises(GraphError, match=r"more than one value crosses.*x, y"):
        cut(graph, 1)
    for layers in (0, 2):
        with pytest.raises(GraphError, match="both parts must have some"):
            cut(graph, layers)
