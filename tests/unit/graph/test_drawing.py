"""Listing a graph, folding its layers, and drawing it so that nothing covers anything else."""

import re
from collections.abc import Sequence
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ingot import GgufLoader
from ingot.graph import ComputationGraph
from ingot.graph import ops as o
from ingot.graph.dot import to_dot
from ingot.graph.drawing import Drawing
from ingot.graph.fusion import fuse
from ingot.graph.listing import GraphListing
from ingot.graph.memory_plan import MemoryPlan
from ingot.graph.svg import to_svg
from ingot.graph.svg_layout import Layout, Place, Point, lay_out
from ingot.models import build_graph
from tiny_llama import write_tiny_llama

SVG = "{http://www.w3.org/2000/svg}"
LAYERS = 5


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> ComputationGraph:
    path = tmp_path_factory.mktemp("graph") / "tiny.gguf"
    with GgufLoader(write_tiny_llama(path, layers=LAYERS)) as file:
        return build_graph(file)


@pytest.fixture(scope="module")
def gemma(gemma_path: Path) -> ComputationGraph:
    with GgufLoader(gemma_path) as file:
        return build_graph(file)


@pytest.fixture(params=["described", "fused", "gemma", "gemma fused"])
def listing(request: pytest.FixtureRequest) -> GraphListing:
    found = request.getfixturevalue("gemma" if "gemma" in request.param else "graph")
    return GraphListing.of(fuse(found) if "fused" in request.param else found)


def test_a_listing_is_the_graph_and_its_plan(graph: ComputationGraph) -> None:
    fused = fuse(graph)
    plan, listing = MemoryPlan.of(fused), GraphListing.of(fused)
    assert len(listing.ops) == len(fused.ops) == 1 + 6 * LAYERS + 2 + 1
    assert [op.reads for op in listing.ops] == [
        tuple(value.name for value in op.inputs) for op in fused.ops
    ]
    values = {value.name: value for op in listing.ops for value in op.writes}
    assert {name: value.slot for name, value in values.items() if value.slot} == plan.slots
    assert [name for name, value in values.items() if value.slot is None] == ["logits"]
    assert all(value.bytes == 4 * value.width for value in values.values())
    assert listing.arena == plan.size
    assert listing.unshared == sum(slot.size for slot in plan.slots.values())


def test_an_operation_in_words(graph: ComputationGraph) -> None:
    first, second, third, fourth, *_ = GraphListing.of(fuse(graph)).ops[1:]
    assert (first.kind, first.remarks, first.layer) == ("linear", ("after rms norm",), 0)
    assert [weight.name for weight in first.weights] == [
        f"blk.0.{name}.weight" for name in ("attn_norm", "attn_q", "attn_k", "attn_v")
    ]
    assert (second.kind, second.cache, second.layer) == ("store kv", "written", 0)
    assert second.remarks == ("rope of 16 pairs (interleaved)",)
    assert (third.kind, third.remarks, third.cache) == ("attend", ("2 heads over 1",), "read")
    assert (fourth.kind, fourth.remarks) == ("linear", ("+ residual",))
    described = GraphListing.of(graph).ops
    kinds = [op.kind for op in described if op.layer == 0]
    assert kinds == [
        *("norm", "linear", "linear", "linear", "rope", "rope", "write kv", "attend", "linear"),
        *("add", "norm", "linear", "linear", "activate", "linear", "add"),
    ]
    assert described[-1].layer is None


def test_every_weight_is_listed(listing: GraphListing, request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.params["listing"]
    graph = request.getfixturevalue("gemma" if "gemma" in name else "graph")
    assert {weight for op in listing.ops for weight in op.weights} == set(graph.weights())


def test_equal_layers_are_folded(graph: ComputationGraph) -> None:
    drawing = Drawing.of(GraphListing.of(fuse(graph)))
    assert [(section.title, section.count) for section in drawing.sections] == [
        ("", 1),
        ("layers 0 to 3, x 4", 4),
        ("layer 4", 1),  # it selects the wanted tokens
        ("", 1),
    ]
    assert len(drawing.boxes) == 1 + 6 + 8 + 1
    assert [n for section in drawing.sections for n in section.boxes] == list(range(16))
    attention = {f"attn_{name}.weight" for name in ("norm", "q", "k", "v", "output")}
    mlp = {f"ffn_{name}.weight" for name in ("norm", "gate", "up", "down")}
    names = {weight.name for box in drawing.boxes[1:7] for weight in box.weights}
    assert names == attention | mlp


def test_layers_that_differ_are_not_folded(gemma: ComputationGraph) -> None:
    titles = [section.title for section in Drawing.of(GraphListing.of(fuse(gemma))).sections]
    assert titles[1:4] == ["layers 0 to 4, x 5", "layer 5", "layers 6 to 10, x 5"]


def test_arrows_come_from_what_is_before(graph: ComputationGraph) -> None:
    drawing = Drawing.of(GraphListing.of(fuse(graph)))
    arrows = {
        (arrow.source, arrow.target, arrow.value.name if arrow.value else "cache")
        for arrow in drawing.arrows
    }
    assert (0, 1, "token_embd") in arrows
    assert (0, 4, "token_embd") in arrows  # the residual, past the attention
    assert (2, 3, "cache") in arrows
    # The last layer reads what the folded ones give to the next.
    assert (6, 7, f"blk.{LAYERS - 2}.ffn_residual") in arrows
    assert (14, 15, f"blk.{LAYERS - 1}.ffn_residual") in arrows


def test_every_box_but_the_first_is_reached(listing: GraphListing) -> None:
    drawing = Drawing.of(listing)
    assert all(arrow.source < arrow.target for arrow in drawing.arrows)
    assert {arrow.target for arrow in drawing.arrows} == set(range(1, len(drawing.boxes)))
    assert {arrow.source for arrow in drawing.arrows} == set(range(len(drawing.boxes) - 1))


def overlap(one: Place, two: Place) -> bool:
    across = one.x < two.x + two.width and two.x < one.x + one.width
    return across and one.y < two.y + two.height and two.y < one.y + one.height


def on_one_another(one: tuple[Point, Point], two: tuple[Point, Point]) -> bool:
    """Whether two stretches, each level or upright, share more than a point."""
    for axis in (0, 1):
        if len({point[axis] for point in (*one, *two)}) == 1:
            a, b = sorted(point[1 - axis] for point in one)
            c, d = sorted(point[1 - axis] for point in two)
            return min(b, d) > max(a, c)
    return False


def check_layout(layout: Layout, sizes: Sequence[tuple[float, float]]) -> None:
    assert [(box.width, box.height) for box in layout.boxes] == list(sizes)
    assert not any(overlap(one, two) for one, two in combinations(layout.boxes, 2))
    frames = [frame for _, frame in layout.frames]
    assert not any(overlap(one, two) for one, two in combinations(frames, 2))
    for route in layout.routes:
        source = layout.boxes[route.arrows[0].source]
        target = layout.boxes[route.arrows[0].target]
        (x0, y0), (x1, y1) = route.points[0], route.points[-1]
        assert source.x < x0 < source.x + source.width
        assert target.x < x1 < target.x + target.width
        assert y0 == source.y + source.height < y1 == target.y
        assert all(0 <= x <= layout.width and 0 <= y <= layout.height for x, y in route.points)
    detours = [list(pairwise(route.points)) for route in layout.routes if len(route.points) > 2]
    for one, two in combinations(detours, 2):
        assert not any(on_one_another(a, b) for a in one for b in two)
    boxes = [
        Place(box.x + 1, box.y + 1, box.width - 2, box.height - 2) for box in layout.boxes
    ]  # an arrow may touch a side
    for stretches in detours:
        for (x0, y0), (x1, y1) in stretches:
            stretch = Place(min(x0, x1), min(y0, y1), abs(x1 - x0), abs(y1 - y0))
            assert not any(overlap(stretch, box) for box in boxes)


def test_nothing_covers_anything_else(listing: GraphListing) -> None:
    drawing = Drawing.of(listing)
    sizes = [(100.0 + 17 * (n % 5), 20.0 + 9 * (n % 7)) for n in range(len(drawing.boxes))]
    check_layout(lay_out(drawing, sizes, 40.0), sizes)


def test_arrows_that_pass_rows_take_lanes_of_their_own() -> None:
    values = [o.Value(f"v{n}", 8) for n in range(6)]
    weights = [o.Weight(f"w{n}", (8, 8)) for n in range(6)]
    ops: list[o.Op] = [o.Embed(weight=o.Weight("e", (9, 8)), out=values[0])]
    for n in range(1, 6):
        ops.append(o.Linear(source=values[n - 1], out=values[n], weight=weights[n]))
    total = values[5]
    for n in range(4):  # each reads a value of long ago
        ops.append(o.Add(left=values[n], right=total, out=o.Value(f"sum{n}", 8)))
        total = o.Value(f"sum{n}", 8)
    chosen = o.Value("chosen", 8)
    ops.append(o.Select(source=total, out=chosen))
    logits = o.Value("logits", 9)
    ops.append(o.Linear(source=chosen, out=logits, weight=o.Weight("head", (9, 8))))
    drawing = Drawing.of(GraphListing.of(ComputationGraph(tuple(ops), logits, (), 8)))
    sizes = [(80.0, 30.0)] * len(drawing.boxes)
    layout = lay_out(drawing, sizes, 40.0)
    check_layout(layout, sizes)
    lanes = {route.points[2][0] for route in layout.routes if len(route.points) > 2}
    assert len(lanes) == 4


def test_the_svg_holds_everything(listing: GraphListing) -> None:
    drawing = Drawing.of(listing)
    root = ElementTree.fromstring(to_svg(drawing, "a < b & c"))
    texts = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert texts[0] == "a < b & c"
    for section in drawing.sections:
        assert not section.title or section.title in texts
    for op in drawing.boxes:
        assert ", ".join((op.kind, *op.remarks)) in texts
        for value in op.writes:
            assert f"→ {value.name}  {value.bytes} B" in texts
    assert sum("box" in rect.get("class", "") for rect in root.iter(f"{SVG}rect")) == len(
        drawing.boxes
    )
    arrows = [path for path in root.iter(f"{SVG}path") if "arrow" in path.get("class", "")]
    assert len(arrows) == len({(arrow.source, arrow.target) for arrow in drawing.arrows})
    says = " ".join(path.findtext(f"{SVG}title", "") for path in arrows)
    for arrow in drawing.arrows:
        assert (arrow.value.name if arrow.value else "the cache") in says
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    for rect in root.iter(f"{SVG}rect"):
        if rect.get("x"):
            assert float(rect.get("x", "")) + float(rect.get("width", "")) <= width
            assert float(rect.get("y", "")) + float(rect.get("height", "")) <= height


def test_text_stays_inside_its_box(listing: GraphListing) -> None:
    root = ElementTree.fromstring(to_svg(Drawing.of(listing), "title"))
    for group in root.iter(f"{SVG}g"):
        box = group.find(f"{SVG}rect")
        assert box is not None
        right = float(box.get("x", "")) + float(box.get("width", ""))
        bottom = float(box.get("y", "")) + float(box.get("height", ""))
        for text in group.iter(f"{SVG}text"):
            assert float(text.get("x", "")) + 11 * 0.602 * len(text.text or "") <= right
            assert float(text.get("y", "")) <= bottom


def test_the_dot_file_holds_everything(listing: GraphListing) -> None:
    drawing = Drawing.of(listing)
    text = to_dot(drawing, 'a "title" \\')
    assert r'label="a \"title\" \\";' in text
    nodes = re.findall(r"^ +n(\d+) \[label=\"", text, re.M)
    assert sorted(map(int, nodes)) == list(range(len(drawing.boxes)))
    edges = re.findall(r"^  n(\d+) -> n(\d+) \[", text, re.M)
    assert [(int(a), int(b)) for a, b in edges] == [(a.source, a.target) for a in drawing.arrows]
    assert text.count("style=dashed") == sum(arrow.value is None for arrow in drawing.arrows)
    assert text.count("{") == text.count("}") == 1 + sum(bool(s.title) for s in drawing.sections)
    assert re.sub(r"\\.", "", text).count('"') % 2 == 0
