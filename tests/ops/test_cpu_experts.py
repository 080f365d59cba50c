"""What the table cannot say of experts: ties, scores that are no numbers, what is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ingot.backends.reference.experts import route
from ingot.graph import ops as o
from ops.experts import ExpertsCase
from ops.small_graph import Floats, SmallGraph
from run_batches import Runner


def routed(scores: Floats, folder: Path, **settings: object) -> Floats:
    """What the CPU makes of scores."""
    small = SmallGraph()
    x = small.embed(scores)
    used = settings["used"]
    out = small.value(2 * int(str(used)))
    small.ops.append(o.Route(scores=x, out=out, **settings))  # type: ignore[arg-type]
    graph, model = small.build(small.select(out), folder / "route.gguf")
    with model:
        return Runner(graph, model, max_tokens=64).run(list(range(len(scores))))


@pytest.mark.usefixtures("isa")
def test_equal_scores_take_the_first(tmp_path: Path) -> None:
    found = routed(np.zeros((3, 7), np.float32), tmp_path, used=3, gating=o.Gating.SOFTMAX)
    np.testing.assert_allclose(found, [[0, 1, 2, *[1 / 7] * 3]] * 3, rtol=1e-6)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("gating", o.Gating)
def test_what_is_no_number_still_chooses(gating: o.Gating, tmp_path: Path) -> None:
    """Experts that are there, each once; other tokens are not touched."""
    scores = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    good = routed(scores, tmp_path, used=4, gating=gating)
    for row, bad in enumerate([np.nan, np.inf, -np.inf]):
        scores[row, row + 1] = bad
    scores[0] = np.nan
    found = routed(scores, tmp_path, used=4, gating=gating)
    for chosen in found[:, :4].astype(int).tolist():
        assert sorted(set(chosen)) == sorted(chosen)
        assert set(chosen) <= set(range(6))
    np.testing.assert_array_equal(found[3], good[3])


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("gating", o.Gating)
def test_weights_of_large_scores(gating: o.Gating, tmp_path: Path) -> None:
    scores = np.random.default_rng(1).standard_normal((20, 12)).astype(np.float32) * 60
    options = {"used": 4, "gating": gating, "near": 0.1}
    op = o.Route(scores=o.Value("s", 12), out=o.Value("c", 8), **options)  # type: ignore[arg-type]
    expected = route(scores.astype(np.float64), op)
    found = routed(scores, tmp_path, **options)
    np.testing.assert_allclose(found[:, 4:], expected[:, 4:], rtol=1e-5, atol=1e-30)


def test_experts_follow_their_route(tmp_path: Path) -> None:
    """Tokens are sorted for the latest route alone."""
    small, _ = ExpertsCase().build()
    first = next(op for op in small.ops if isinstance(op, o.Route))
    at = small.ops.index(first) + 1
    small.ops.insert(at, replace(first, out=o.Value("another", first.out.width)))
    graph, model = small.build(small.ops[-1].outputs[0], tmp_path / "experts.gguf")
    with model, pytest.raises(ValueError, match="follow the route that chooses them"):
        Runner(graph, model)


def test_too_many_experts_for_a_token(tmp_path: Path) -> None:
    small, logits = ExpertsCase(experts=70, used=65).build()
    graph, model = small.build(logits, tmp_path / "experts.gguf")
    with model, pytest.raises(ValueError, match="a choice of 65 of 70 experts"):
        Runner(graph, model)
