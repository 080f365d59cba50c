"""Fusion changes where values live, never what they are; what it cannot keep it refuses."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ingot.backends.reference import Cache, Reference
from ingot.errors import GraphError
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph, KvLayer, MemoryPlan
from ingot.graph import ops as o
from ingot.graph.fusion import fuse
from ingot.graph.ops import FusedLinear, FusedNorm, StoreKv
from ingot.models import build_graph
from models.recipes import RECIPES
from models.tiny_models import Fixture
from ops.fused_reference import FusedReference

LOGITS = o.Value("logits", 4)


@pytest.mark.parametrize("name", RECIPES)
def test_fused_is_unfused(name: str, tmp_path: Path) -> None:
    fixture = Fixture.load(name)
    ids, outputs = fixture.token_ids[:20], [19, 3, 4]
    with GgufLoader(fixture.write(tmp_path / "model.gguf")) as model:
        graph = build_graph(model)
        reference, cache, fused_cache = Reference(graph, model, np.float64), Cache(), Cache()
        if graph.encoder:
            encoded = reference.encode(ids[3:], cache)
            encoder = FusedReference(fuse(graph.encoder), model)
            every = encoder.forward(ids[3:], list(range(17)), fused_cache)
            np.testing.assert_allclose(every.astype(np.float32), encoded, rtol=0, atol=1e-6)
            fused_cache.encoded = cache.encoded
        whole = reference.forward(ids, cache, outputs=outputs)
        fused = FusedReference(fuse(graph), model).forward(ids, outputs, fused_cache)
    np.testing.assert_allclose(fused.astype(np.float32), whole, rtol=0, atol=1e-6)


def test_what_becomes_of_a_layer(tmp_path: Path) -> None:
    """Six operations a layer in Llama: every norm, activation, sum and RoPE joins another."""
    with GgufLoader(Fixture.load("llama").write(tmp_path / "model.gguf")) as model:
        graph = build_graph(model)
    fused = fuse(graph)
    kinds = [type(op) for op in fused.ops]
    layer = [FusedLinear, StoreKv, o.Attend, FusedLinear, FusedLinear, FusedLinear]
    last = [*layer[:3], o.Select, o.Select, *layer[3:]]
    assert kinds == [o.Embed, *layer, *layer, *last, FusedLinear]
    qkv, down = fused.ops[1], fused.ops[6]
    assert isinstance(qkv, FusedLinear)
    assert [part.weight.name for part in qkv.parts] == [
        f"blk.0.attn_{which}.weight" for which in "qkv"
    ]
    assert qkv.norm is not None
    assert isinstance(down, FusedLinear)
    assert down.parts[0].residual == o.Value("blk.0.attn_residual", 96)
    assert MemoryPlan.of(fused).size < MemoryPlan.of(graph).size


def linear(source: o.Value, name: str, width: int = 4) -> o.Linear:
    out = o.Value(name, width)
    return o.Linear(source=source, out=out, weight=o.Weight(f"w.{name}", (width, source.width)))


def graph_of(*ops: o.Op, layers: tuple[KvLayer, ...] = ()) -> ComputationGraph:
    """The operations after an embedding of width 4 named x; the last value is selected."""
    embed = o.Embed(weight=o.Weight("embed", (9, 4)), out=o.Value("x", 4))
    select = o.Select(source=ops[-1].outputs[0], out=LOGITS)
    return ComputationGraph((embed, *ops, select), LOGITS, layers, 8)


X, MIXED = o.Value("x", 4), o.Value("mixed", 4)


def activation(gate: o.Linear, up: o.Linear | None = None) -> o.Activate:
    return o.Activate(
        gate=gate.out, up=up.out if up else None, out=o.Value("act", 4), kind=o.Activation.SILU
    )


def test_an_activation_needs_its_gate_first() -> None:
    gate, up = linear(X, "gate"), linear(X, "up")
    assert len(fuse(graph_of(gate, up, activation(gate, up))).ops) == 3
    assert len(fuse(graph_of(up, gate, activation(gate, up))).ops) == 4


def test_an_activation_takes_nobody_else_along() -> None:
    gate, other = linear(X, "gate"), linear(X, "other")
    act = activation(gate)
    mixed = activation(linear(act.out, "late"), other)
    fused = fuse(graph_of(gate, other, act, linear(act.out, "late"), replace(mixed, out=MIXED)))
    assert [type(op).__name__ for op in fused.ops[1:-1]] == [
        "FusedLinear",
        "Activate",
        "FusedLinear",
        "Activate",
    ]


def test_a_gate_that_others_read_stays() -> None:
    gate = linear(X, "gate")
    act = activation(gate)
    more = linear(act.out, "more")
    added = o.Add(left=more.out, right=gate.out, out=o.Value("sum", 4))
    fused = fuse(graph_of(gate, act, more, added))
    assert act in fused.ops


def test_a_sum_waits_for_both_sides() -> None:
    """The other side of an addition must exist when the linear map before it runs."""
    early, late = linear(X, "early"), linear(o.Value("mid", 4), "late")
    mid = linear(X, "mid")
    total = o.Add(left=late.out, right=early.out, out=o.Value("sum", 4))
    fused = fuse(graph_of(early, mid, late, total))
    joined = fused.ops[-2]
    assert isinstance(joined, FusedLinear)
    assert joined.parts[0].residual == early.out
    assert joined.parts[0].out == total.out


def test_a_norm_that_others_read_stands_alone() -> None:
    norm = o.Norm(
        source=X,
        out=o.Value("n", 4),
        weight=o.Weight("norm", (4,)),
        kind=o.NormKind.RMS,
        epsilon=1e-6,
    )
    y = linear(norm.out, "y")
    total = o.Add(left=norm.out, right=y.out, out=o.Value("sum", 4))
    kinds = [type(op) for op in fuse(graph_of(norm, y, total)).ops]
    assert kinds == [o.Embed, FusedNorm, FusedLinear, o.Select]
    assert [type(op) for op in fuse(graph_of(norm)).ops] == [o.Embed, FusedNorm, o.Select]


def attention(**turns: o.Rope) -> list[o.Op]:
    q, k, v = (linear(X, name) for name in "qkv")
    query = turns["query"].out if "query" in turns else q.out
    key = turns["key"].out if "key" in turns else k.out
    write = o.WriteKv(key=key, value=v.out, kv_layer=0)
    attend = o.Attend(query=query, out=o.Value("a", 4), kv_layer=0, heads=1, kv_heads=1, scale=1.0)
    return [q, k, v, *turns.values(), write, attend]


def turn(name: str, speed: float) -> o.Rope:
    return o.Rope(
        source=o.Value(name, 4),
        out=o.Value(f"{name}.rope", 4),
        head_size=4,
        frequencies=(speed,),
        layout=o.RopeLayout.HALF_SPLIT,
    )


LAYERS = (KvLayer(1, 4, 0),)


def test_query_and_key_turn_alike() -> None:
    same = attention(query=turn("q", 0.5), key=turn("k", 0.5))
    assert [type(op) for op in fuse(graph_of(*same, layers=LAYERS)).ops][2:4] == [StoreKv, o.Attend]
    for turns in ({"query": turn("q", 0.5)}, {"query": turn("q", 0.5), "key": turn("k", 0.25)}):
        with pytest.raises(GraphError, match="layer 0 have different rotary embeddings"):
            fuse(graph_of(*attention(**turns), layers=LAYERS))


def test_heads_are_changed_in_place_only_if_nobody_else_looks() -> None:
    ops = attention(query=turn("q", 0.5), key=turn("k", 0.5))
    total = o.Add(left=o.Value("q", 4), right=o.Value("a", 4), out=o.Value("sum", 4))
    with pytest.raises(GraphError, match="q is read by others too"):
        fuse(graph_of(*ops, total, layers=LAYERS))


def test_a_key_may_be_read_before_its_heads_are_changed() -> None:
    """The value is made of it."""
    ops = attention(query=turn("q", 0.5), key=turn("k", 0.5))
    at = next(index for index, op in enumerate(ops) if isinstance(op, o.WriteKv))
    value = o.Value("normed", 4)
    normed = o.Norm(
        source=o.Value("k", 4), out=value, weight=None, kind=o.NormKind.RMS, epsilon=1e-6
    )
    ops = [*ops[:at], normed, replace(ops[at], value=value), *ops[at + 1 :]]
    kinds = [type(op) for op in fuse(graph_of(*ops, layers=LAYERS)).ops]
    assert kinds[kinds.index(o.FusedNorm) + 1] is StoreKv


def test_a_second_attention_over_the_same_keys_turns_its_query_itself() -> None:
    ops = attention(query=turn("q", 0.5), key=turn("k", 0.5))
    again = [turn("a", 0.5), replace(ops[-1], query=o.Value("a.rope", 4), out=o.Value("b", 4))]
    kinds = [type(op) for op in fuse(graph_of(*ops, *again, layers=LAYERS)).ops]
    assert kinds[-5:-1] == [StoreKv, o.Attend, o.Rope, o.Attend]


def test_a_cache_that_another_graph_reads() -> None:
    """Its keys are normed and rotated where they are stored; there is no query."""
    k, v, rope = linear(X, "k"), linear(X, "v"), turn("k", 0.5)
    write = o.WriteKv(key=rope.out, value=v.out, kv_layer=0)
    store = fuse(graph_of(k, v, rope, write, linear(X, "y"), layers=LAYERS)).ops[2]
    assert isinstance(store, StoreKv)
    assert (store.query, store.key, store.rope) == (None, k.out, rope.rotary)


def test_replace_keeps_everything_else(tmp_path: Path) -> None:
    """An attention's numbers survive the change of its query."""
    fixture = Fixture.load("gemma3")
    with GgufLoader(fixture.write(tmp_path / "model.gguf")) as model:
        graph = build_graph(model)
    before = [op for op in graph.ops if isinstance(op, o.Attend)]
    after = [op for op in fuse(graph).ops if isinstance(op, o.Attend)]
    assert [replace(op, query=LOGITS) for op in before] == [
        replace(op, query=LOGITS) for op in after
    ]
