"""No two values that are alive together share a byte, and the arena is not larger than needed."""

from hypothesis import given
from hypothesis import strategies as st

from ingot.graph import ComputationGraph, MemoryPlan
from ingot.graph import ops as o


@st.composite
def graphs(draw: st.DrawFn) -> ComputationGraph:
    """Random additions of values of the same width, and linear maps between widths."""
    widths = draw(st.lists(st.integers(1, 100), min_size=1, max_size=4))
    values = [o.Value("v0", widths[0])]
    ops: list[o.Op] = [o.Embed(weight=o.Weight("e", (7, widths[0])), out=values[0])]
    for index in range(1, draw(st.integers(1, 25))):
        source = draw(st.sampled_from(values))
        if draw(st.booleans()):
            other = draw(st.sampled_from([v for v in values if v.width == source.width]))
            out = o.Value(f"v{index}", source.width)
            ops.append(o.Add(left=source, right=other, out=out))
        else:
            out = o.Value(f"v{index}", draw(st.sampled_from(widths)))
            weight = o.Weight(f"w{index}", (out.width, source.width))
            ops.append(o.Linear(source=source, out=out, weight=weight))
        values.append(out)
    logits = o.Value("logits", 7)
    selected = o.Value("selected", values[-1].width)
    ops.append(o.Select(source=values[-1], out=selected))
    weight = o.Weight("head", (7, selected.width))
    ops.append(o.Linear(source=selected, out=logits, weight=weight))
    return ComputationGraph(tuple(ops), logits, (), 8)


@given(graphs())
def test_live_values_do_not_overlap(graph: ComputationGraph) -> None:
    plan = MemoryPlan.of(graph)
    last_read = {v.name: i for i, op in enumerate(graph.ops) for v in (*op.outputs, *op.inputs)}
    first_write = {v.name: i for i, op in enumerate(graph.ops) for v in op.outputs}
    names = [name for name in first_write if name != "logits"]
    assert set(plan.slots) == set(names)
    for index, one in enumerate(names):
        a = plan.slots[one]
        assert a.offset % 64 == 0
        assert a.offset + a.size <= plan.size
        assert a.size >= 4 * next(v.width for v in graph.values() if v.name == one)
        for two in names[index + 1 :]:
            b = plan.slots[two]
            together = first_write[one] <= last_read[two] and first_write[two] <= last_read[one]
            if together:
                assert a.offset + a.size <= b.offset or b.offset + b.size <= a.offset


@given(graphs())
def test_the_arena_is_near_the_peak(graph: ComputationGraph) -> None:
    plan = MemoryPlan.of(graph)
    peak = max(
        sum(slot.size for slot in plan.slots.values() if slot.overlaps(at, at))
        for at in range(len(graph.ops))
    )
    assert peak <= plan.size <= 2 * peak
