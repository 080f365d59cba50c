"""Recurrent operations in a graph: what fits, what is kept."""

from dataclasses import replace

import pytest

from ingot.errors import GraphError
from ingot.graph import ComputationGraph, KvLayer
from ingot.graph import ops as o
from ingot.graph.kv_layout import BLOCK_TOKENS, KvGroup, KvLayout
from ingot.graph.kv_type import KvType

X, LOGITS = o.Value("x", 40), o.Value("logits", 40)
EMBED = o.Embed(weight=o.Weight("embed", (9, 40)), out=X)
CONV = o.CausalConv(
    source=X,
    out=o.Value("convolved", 40),
    weight=o.Weight("conv", (40, 4)),
    bias=o.Weight("bias", (40,)),
    state=0,
)
STEP, B, C = (
    o.Linear(source=X, out=o.Value(name, width), weight=o.Weight(name, (width, 40)))
    for name, width in (("step", 4), ("b", 6), ("c", 6))
)
SCAN = o.StateScan(
    x=CONV.out,
    step=STEP.out,
    b=B.out,
    c=C.out,
    out=o.Value("scanned", 40),
    decay=o.Weight("decay", (4, 3)),
    skip=o.Weight("skip", (4,)),
    groups=2,
    state=1,
)


DELTA = o.DeltaRule(
    query=B.out,
    key=C.out,
    value=CONV.out,
    step=STEP.out,
    rate=STEP.out,
    out=o.Value("corrected", 40),
    decay=o.Weight("decay", (4,)),
    bias=o.Weight("bias", (4,)),
    key_heads=2,
    tiled=False,
    epsilon=1e-6,
    state=1,
)


def make(*ops: o.Op) -> ComputationGraph:
    select = o.Select(source=ops[-1].outputs[0], out=LOGITS)
    return ComputationGraph((EMBED, *ops, select), LOGITS, (), 8)


def test_what_is_kept() -> None:
    """Three rows of 40 channels; two groups of 20, which take two vectors of lanes each."""
    assert make(CONV, STEP, B, C, SCAN).states == (3 * 40, 2 * 2 * 3 * 16)
    assert replace(SCAN, decay=o.Weight("decay", (4, 1))).state_floats == 2 * 2 * 3 * 16


@pytest.mark.parametrize(
    "changed",
    [
        replace(CONV, weight=o.Weight("conv", (40, 1))),
        replace(CONV, weight=o.Weight("conv", (39, 4))),
        replace(CONV, bias=o.Weight("bias", (4,))),
        replace(SCAN, decay=o.Weight("decay", (4, 2))),
        replace(SCAN, decay=o.Weight("decay", (3, 3))),
        replace(SCAN, skip=o.Weight("skip", (40,))),
        replace(SCAN, groups=3),
        replace(SCAN, groups=0),
        replace(SCAN, c=STEP.out),
        replace(SCAN, step=C.out),
    ],
)
def test_sizes_that_do_not_fit(changed: o.Op) -> None:
    ops = [changed if type(op) is type(changed) else op for op in (CONV, STEP, B, C, SCAN)]
    with pytest.raises(GraphError, match="sizes do not fit"):
        make(*ops)


def test_a_delta_rule_keeps_a_matrix_of_each_head() -> None:
    """Four of 3 x 10, whose columns take a vector of lanes."""
    assert make(CONV, STEP, B, C, DELTA).states == (3 * 40, 4 * 3 * 16)


@pytest.mark.parametrize(
    "changed",
    [
        replace(DELTA, key_heads=3),
        replace(DELTA, key_heads=0),
        replace(DELTA, query=STEP.out),
        replace(DELTA, rate=C.out),
        replace(DELTA, out=o.Value("corrected", 39)),
        replace(DELTA, decay=o.Weight("decay", (2,))),
        replace(DELTA, bias=o.Weight("bias", (4, 1))),
    ],
)
def test_heads_that_do_not_go_together(changed: o.Op) -> None:
    with pytest.raises(GraphError, match="DeltaRule of corrected: sizes do not fit"):
        make(CONV, STEP, B, C, changed)


@pytest.mark.parametrize("state", [0, 2, -1])
def test_every_state_has_its_number(state: int) -> None:
    with pytest.raises(GraphError, match="not numbered from 0 on, each once"):
        make(CONV, STEP, B, C, replace(SCAN, state=state))


def test_all_tokens_move_a_state_on() -> None:
    select = o.Select(source=X, out=o.Value("some", 40))
    late = replace(CONV, source=select.out, out=LOGITS)
    with pytest.raises(GraphError, match="needs all tokens"):
        ComputationGraph((EMBED, select, late), LOGITS, (), 8)


def test_states_are_the_last_group() -> None:
    layout = KvLayout.of([KvLayer(1, 32, 0)], KvType.F16, [3, 100])
    assert [(place.group, place.offset) for place in layout.states] == [(1, 0), (1, 64)]
    assert layout.groups[1] == KvGroup(0, 64 + 448, recurrent=True)
    assert layout.recurrent
    assert not KvLayout.of([KvLayer(1, 32, 0)], KvType.F16).recurrent


def test_only_the_last_state_is_looked_at() -> None:
    group = KvGroup(0, 64, recurrent=True)
    lengths = (0, 1, BLOCK_TOKENS, BLOCK_TOKENS + 1, 2 * BLOCK_TOKENS)
    assert [group.oldest_run(length) for length in lengths] == [0, 0, 0, 1, 1]
    assert group.blocks_of(1000, 512) == 2
