"""Cases drawn at random: the CPU backend against the reference, on any instruction set."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.graph import ops as o
from ingot.graph.kv_type import KvType
from ops.attention import CPU_KV_TYPES, AttentionCase
from ops.cpu import ISAS, check
from ops.experts import ExpertsCase
from ops.recurrent import Scan
from ops.small_graph import SmallGraph, assert_near, expected_logits
from run_batches import Runner, using_isa

IDS = [3, 0, 4, 4, 1, 2, 0]


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_chains_of_operations(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Norms, linear maps, gates and residuals in any order, fused or not."""
    isa = data.draw(st.sampled_from(ISAS), "isa")
    small = SmallGraph(data.draw(st.integers(0, 1000), "seed"))
    width = data.draw(st.integers(1, 70), "width")
    stream = small.embed(small.random(5, width))
    for block in data.draw(st.lists(st.sampled_from("nlga"), min_size=1, max_size=4), "blocks"):
        x = stream
        if data.draw(st.booleans(), "norm"):
            x = small.value(width)
            kind = data.draw(st.sampled_from(o.NormKind), "kind")
            weight = small.weight(small.random(width, offset=1, scale=0.1))
            small.ops.append(o.Norm(source=stream, out=x, weight=weight, kind=kind, epsilon=1e-3))
        inner = data.draw(st.integers(1, 90), "inner")
        down = small.random(width, inner, scale=inner**-0.5)
        match block:
            case "l":
                y = small.linear(x, small.random(width, width, scale=width**-0.5))
            case "n" | "g":
                gate = small.linear(x, small.random(inner, width, scale=width**-0.5))
                up = None
                if block == "g":
                    up = small.linear(x, small.random(inner, width), small.random(inner))
                act = small.value(inner)
                kind = data.draw(st.sampled_from(o.Activation), "activation")
                small.ops.append(o.Activate(gate=gate, up=up, out=act, kind=kind))
                y = small.linear(act, down)
            case _:
                y = small.linear(small.linear(x, small.random(inner, width)), down)
        stream = small.add(stream, y)
    graph, model = small.build(
        small.select(stream), tmp_path_factory.mktemp("chain") / "small.gguf"
    )
    with model, using_isa(isa):
        expected = expected_logits(graph, model, IDS)
        runner = Runner(graph, model, threads=2, max_tokens=len(IDS))
        assert_near(runner.run(IDS, generated=3), expected, 1e-4)


def fitting(case: AttentionCase) -> AttentionCase:
    """The nearest case that exists and can be compared.

    Whole groups of heads, whole blocks of the cache type; and a norm's last bit would now and
    then round a key the other way.
    """
    whole = case.size % case.kv_type.block_size == 0
    return replace(
        case,
        heads=case.heads * case.kv_heads,
        generated=min(case.generated, case.tokens),
        kv_type=KvType.F32 if case.norms else case.kv_type if whole else KvType.F16,
    )


ANY_ATTENTION = st.builds(
    AttentionCase,
    kv_heads=st.integers(1, 3),
    heads=st.integers(1, 8),
    size=st.sampled_from([1, 2, 5, 16, 19, 32, 40, 64, 65]),
    tokens=st.integers(1, 110),
    window=st.just(0) | st.integers(1, 120),
    softcap=st.sampled_from([0.0, 2.0, 50.0]),
    sinks=st.booleans(),
    norms=st.booleans(),
    seed=st.integers(0, 9),
    chunks=st.lists(st.integers(1, 60), max_size=3).map(tuple),
    generated=st.integers(0, 20),
    threads=st.integers(1, 3),
    kv_type=st.sampled_from(CPU_KV_TYPES),
).map(fitting)


@settings(max_examples=60, deadline=None)
@given(case=ANY_ATTENTION, isa=st.sampled_from(ISAS))
def test_attention_of_any_kind(
    case: AttentionCase, isa: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    check(case, tmp_path_factory.mktemp("attention"), [isa])


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_any_experts(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    experts = data.draw(st.integers(1, 20), "experts")
    case = ExpertsCase(
        experts=experts,
        used=data.draw(st.integers(1, min(experts, 6)), "used"),
        width=data.draw(st.integers(1, 70), "width"),
        inner=data.draw(st.integers(1, 120), "inner"),
        tokens=data.draw(st.integers(1, 70), "tokens"),
        gating=data.draw(st.sampled_from(o.Gating), "gating"),
        near=0.3,
        normalize=data.draw(st.booleans(), "normalize"),
        bias=data.draw(st.booleans(), "bias"),
        gated=data.draw(st.booleans(), "gated"),
        activation=data.draw(st.sampled_from(o.Activation), "activation"),
        threads=data.draw(st.integers(1, 3), "threads"),
        seed=data.draw(st.integers(0, 100), "seed"),
    )
    check(case, tmp_path_factory.mktemp("experts"))


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_state_space(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    draw = data.draw
    groups = draw(st.integers(1, 3))
    case = Scan(
        heads=groups * draw(st.integers(1, 9)),
        size=draw(st.sampled_from([1, 2, 3, 15, 16, 17, 32])),
        groups=groups,
        states=draw(st.integers(1, 20)),
        one_decay=draw(st.booleans()),
        tokens=draw(st.integers(1, 40)),
        threads=draw(st.integers(1, 3)),
    )
    check(case, tmp_path_factory.mktemp("recurrent"), [draw(st.sampled_from(ISAS))])
