"""Graphs drawn at random: the CPU backend against the reference, on any instruction set."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_graphs import SmallGraph, assert_near, expected_logits

from ingot import _native
from ingot.graph import ops as o
from run_batches import Runner, using_isa

IDS = [3, 0, 4, 4, 1, 2, 0]
ISAS = st.sampled_from(_native.instruction_sets())


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_chains_of_operations(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Norms, linear maps, gates and residuals in any order, fused or not."""
    isa = data.draw(ISAS, "isa")
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
