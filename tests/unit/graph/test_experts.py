"""Experts in a graph: what fits, what becomes one operation, what is refused, what is listed."""

from dataclasses import replace
from pathlib import Path

import pytest

from ingot.errors import GraphError
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph
from ingot.graph import ops as o
from ingot.graph.fusion import fuse
from ingot.graph.listing import GraphListing
from ingot.graph.ops import ExpertGate, ExpertMix, FusedGateRows, FusedLinear, FusedNorm
from ingot.models import build_graph
from models.tiny_models import Fixture

X, LOGITS = o.Value("x", 6), o.Value("logits", 6)
EMBED = o.Embed(weight=o.Weight("embed", (9, 6)), out=X)
SCORES = o.Linear(source=X, out=o.Value("scores", 5), weight=o.Weight("router", (5, 6)))
ROUTE = o.Route(
    scores=SCORES.out, out=o.Value("choice", 4), used=2, gating=o.Gating.SOFTMAX, normalize=True
)
GATE = o.ExpertLinear(
    source=X, choice=ROUTE.out, out=o.Value("gate", 16), weight=o.Weight("gate", (5, 8, 6))
)
UP = replace(GATE, out=o.Value("up", 16), weight=o.Weight("up", (5, 8, 6)))
ACTIVATE = o.Activate(gate=GATE.out, up=UP.out, out=o.Value("act", 16), kind=o.Activation.SILU)
DOWN = o.ExpertLinear(
    source=ACTIVATE.out,
    choice=ROUTE.out,
    out=o.Value("down", 12),
    weight=o.Weight("down", (5, 6, 8)),
)
MIX = o.MixExperts(source=DOWN.out, choice=ROUTE.out, out=o.Value("mixed", 6))
ADD = o.Add(left=X, right=MIX.out, out=o.Value("sum", 6))
ALL = (SCORES, ROUTE, GATE, UP, ACTIVATE, DOWN, MIX, ADD)


def make(*ops: o.Op) -> ComputationGraph:
    select = o.Select(source=ops[-1].outputs[0], out=LOGITS)
    return ComputationGraph((EMBED, *ops, select), LOGITS, (), 8)


def with_changed(op: o.Op, **changes: object) -> list[o.Op]:
    """All of them, one changed."""
    return [replace(each, **changes) if each is op else each for each in ALL]  # type: ignore[arg-type]


def test_what_becomes_of_experts() -> None:
    fused = fuse(make(*ALL))
    assert [type(op) for op in fused.ops] == [
        o.Embed, FusedLinear, o.Route, ExpertGate, ExpertMix, o.Select,
    ]  # fmt: skip
    mix = fused.ops[4]
    assert isinstance(mix, ExpertMix)
    assert (mix.residual, mix.out) == (X, ADD.out)


@pytest.mark.parametrize(
    "ops",
    [
        with_changed(ROUTE, used=3),
        with_changed(ROUTE, used=0, out=o.Value("choice", 0)),
        with_changed(ROUTE, selection_bias=o.Weight("b", (4,))),
        with_changed(GATE, weight=o.Weight("gate", (5, 8, 7))),
        with_changed(GATE, weight=o.Weight("gate", (40, 6))),
        with_changed(GATE, bias=o.Weight("b", (5, 6))),
        with_changed(GATE, out=o.Value("gate", 8)),
        with_changed(GATE, rows=8, first=1),
        with_changed(ROUTE, expert_scales=o.Weight("s", (4,))),
        with_changed(DOWN, weight=o.Weight("down", (5, 6, 5))),
        with_changed(MIX, out=o.Value("mixed", 12)),
    ],
)
def test_sizes_that_do_not_fit(ops: list[o.Op]) -> None:
    with pytest.raises(GraphError, match="sizes do not fit"):
        make(*ops)


def test_more_experts_used_than_there_are() -> None:
    with pytest.raises(GraphError, match="Route of choice: sizes do not fit"):
        make(SCORES, replace(ROUTE, used=6, out=o.Value("choice", 12)))


def test_the_gate_of_a_row_is_one_number() -> None:
    gated = o.GateRows(source=X, gate=X, out=o.Value("gated", 6))
    with pytest.raises(GraphError, match="GateRows of gated: sizes do not fit"):
        make(gated)


@pytest.mark.parametrize(
    "ops",
    [
        (SCORES, ROUTE, UP, GATE, ACTIVATE, DOWN, MIX),  # up before the gate
        (SCORES, ROUTE, GATE),  # nobody activates
        (SCORES, ROUTE, GATE, UP, ACTIVATE, o.Add(left=ACTIVATE.out, right=UP.out, out=UP.out)),
    ],
)
def test_experts_that_cannot_be_joined(ops: tuple[o.Op, ...]) -> None:
    *before, last = ops
    if isinstance(last, o.Add):  # up has a second reader
        last = replace(last, out=o.Value("sum", 16))
    narrow = o.Linear(
        source=last.outputs[0],
        out=o.Value("narrow", 6),
        weight=o.Weight("n", (6, last.outputs[0].width)),
    )
    with pytest.raises(GraphError, match="must be read by one operation alone"):
        fuse(make(*before, last, narrow))


def test_a_layer_of_a_model(tmp_path: Path) -> None:
    """Norm once for all who read it, then experts, then the shared one and its gate."""
    with GgufLoader(Fixture.load("qwen2moe").write(tmp_path / "model.gguf")) as model:
        graph = build_graph(model)
    fused = fuse(graph)
    names = [op for op in fused.ops if op.outputs and "blk.0.ffn" in op.outputs[0].name]
    assert [type(op) for op in names] == [
        FusedNorm, FusedLinear, o.Route, ExpertGate, ExpertMix, FusedLinear, FusedLinear,
        FusedGateRows,
    ]  # fmt: skip
    words = {op.kind: op for op in GraphListing.of(fused).ops}
    assert words["route"].remarks == ("3 of 7", "softmax")
    assert words["expert gate"].remarks == ("3 of 7 experts", "silu(gate) * up")
    assert words["expert mix"].remarks == ("3 of 7 experts", "+ residual")
    assert words["gate rows"].remarks == ("sigmoid(gate)", "+ residual")
    assert [weight.name for weight in words["expert gate"].weights] == [
        "blk.2.ffn_gate_exps.weight",
        "blk.2.ffn_up_exps.weight",
    ]
    unfused = {op.kind for op in GraphListing.of(graph).ops}
    assert {"route", "expert linear", "expert mix", "gate rows"} <= unfused
