"""Experts: routing, their linear maps and the mix, the CPU backend against the reference.

Scores are picked from a token's embedding, so that every choice is known and clear; the rest of
the row is the input of the experts.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_graphs import Floats, SmallGraph, assert_near, expected_logits

from ingot import _native
from ingot.backends.reference.operations import route
from ingot.gguf import GgmlType
from ingot.graph import ops as o
from kernels.test_linear import random_weight
from run_batches import GENERATION, Runner, using_isa

ISAS = _native.instruction_sets()
FLOAT = 1e-5
QUANTIZED = 2e-3  # inputs are rounded to 14 (prompt) or 15 bits, twice on the way
IN_TILES = 4e-2  # AMX rounds a prompt's weights and inputs to BF16
BLOCK_TYPES = [kind for kind in GgmlType if kind.block_size > 1 and _native.has_linear(kind)]
# What Ingot reads but does not write: blocks of random bits.
UNWRITTEN = {
    GgmlType.IQ1_S,
    GgmlType.IQ1_M,
    GgmlType.IQ2_XXS,
    GgmlType.IQ2_XS,
    GgmlType.IQ2_S,
    GgmlType.IQ3_XXS,
    GgmlType.IQ3_S,
}
TYPES = [GgmlType.F32, GgmlType.F16, GgmlType.BF16, *BLOCK_TYPES]


def clear_scores(small: SmallGraph, tokens: int, experts: int) -> Floats:
    """Scores of which no two of a token are near: rounding must not change a choice."""
    steps = np.linspace(-2, 2, experts, dtype=np.float32)
    return np.stack([small.rng.permutation(steps) for _ in range(tokens)])


@dataclass(frozen=True, kw_only=True)
class Case:
    """A layer of experts and how much of it to run."""

    experts: int = 5
    used: int = 2
    width: int = 40
    inner: int = 33
    tokens: int = 9
    gating: o.Gating = o.Gating.SOFTMAX
    normalize: bool = False
    scale: float = 1.0
    near: float = 0.0
    selection_bias: bool = False
    bias: bool = False
    gated: bool = True
    residual: bool = False
    activation: o.Activation = o.Activation.SILU
    type: GgmlType = GgmlType.F32
    down_type: GgmlType | None = None
    threads: int = 1
    seed: int = 0

    def experts_of(
        self, small: SmallGraph, source: o.Value, choice: o.Value, rows: int, columns: int
    ) -> o.ExpertLinear:
        kind = self.down_type or self.type if source.width != self.width else self.type
        if kind in UNWRITTEN:
            data = random_weight(kind.name, self.experts * rows, columns, small.rng)
            weight = small.encoded(data, kind, (self.experts, rows, columns))
        else:
            matrix = small.random(self.experts, rows, columns, scale=columns**-0.5)
            weight = small.weight(matrix, kind)
        return o.ExpertLinear(
            source=source,
            choice=choice,
            out=small.value(self.used * rows),
            weight=weight,
            bias=small.weight(small.random(self.experts, rows)) if self.bias else None,
        )

    def build(self) -> tuple[SmallGraph, o.Value]:
        small = SmallGraph(self.seed)
        rows = small.random(self.tokens, self.experts + self.width)
        rows[:, : self.experts] = clear_scores(small, self.tokens, self.experts)
        embedded = small.embed(rows)
        scores = small.pick(embedded, 0, self.experts)
        x = small.pick(embedded, self.experts, self.experts + self.width)
        choice = small.value(2 * self.used)
        bias = small.weight(small.random(self.experts)) if self.selection_bias else None
        small.ops.append(
            o.Route(
                scores=scores,
                out=choice,
                used=self.used,
                gating=self.gating,
                normalize=self.normalize,
                scale=self.scale,
                near=self.near,
                selection_bias=bias,
            )
        )
        gate = self.experts_of(small, x, choice, self.inner, self.width)
        small.ops.append(gate)
        up = self.experts_of(small, x, choice, self.inner, self.width) if self.gated else None
        if up:
            small.ops.append(up)
        active = small.value(gate.out.width)
        small.ops.append(
            o.Activate(gate=gate.out, up=up.out if up else None, out=active, kind=self.activation)
        )
        down = self.experts_of(small, active, choice, self.width, self.inner)
        small.ops.append(down)
        mixed = small.value(self.width)
        small.ops.append(o.MixExperts(source=down.out, choice=choice, out=mixed))
        return small, small.select(small.add(x, mixed) if self.residual else mixed)

    def check(self, folder: Path) -> None:
        """Prompt whole and in pieces, one token a step, and several a step."""
        small, logits = self.build()
        graph, model = small.build(logits, folder / "experts.gguf")
        ids = list(range(self.tokens))
        floats = {self.type, self.down_type or self.type} <= {
            GgmlType.F32,
            GgmlType.F16,
            GgmlType.BF16,
        }
        with model:
            expected = expected_logits(graph, model, ids)
            for isa in ISAS:
                with using_isa(isa):
                    runner = Runner(
                        graph,
                        model,
                        threads=self.threads,
                        max_tokens=self.tokens,
                        sequences=self.tokens,
                        positions=max(self.tokens, 32),
                    )
                    bound = FLOAT if floats else QUANTIZED
                    prompt = IN_TILES if isa == "amx" and not floats else bound
                    assert_near(runner.run(ids), expected, prompt)
                    assert_near(runner.run(ids, chunks=[1, 4]), expected, prompt)
                    assert_near(runner.run(ids, generated=len(ids)), expected, bound)
                    together = ids[: _native.MAX_GENERATION_TOKENS]
                    step = runner.step({token: [token] for token in together}, GENERATION)
                    found = np.concatenate([step[token] for token in together])
                    assert_near(found, expected[: len(together)], bound)


@pytest.mark.parametrize(
    "case",
    [
        Case(),
        Case(normalize=True, residual=True),
        Case(scale=2.5, normalize=True),
        Case(gating=o.Gating.SIGMOID),
        Case(gating=o.Gating.SIGMOID, selection_bias=True, normalize=True, scale=1.7, used=3),
        Case(gating=o.Gating.CHOSEN_SOFTMAX, used=3, bias=True),
        Case(gating=o.Gating.CHOSEN_SOFTMAX, experts=1, used=1),
        Case(gating=o.Gating.SPARSE_MIXER, near=0.02),
        Case(gating=o.Gating.SPARSE_MIXER, near=0.9, used=3, experts=7),
        Case(used=5),
        Case(experts=37, used=8, tokens=70),
        Case(experts=200, used=1, tokens=3),
        Case(experts=3, used=2, tokens=100),
        Case(gated=False, activation=o.Activation.GELU),
        Case(activation=o.Activation.CLAMPED_SWIGLU, bias=True),
    ],
    ids=repr,
)
def test_routing(case: Case, tmp_path: Path) -> None:
    case.check(tmp_path)


@pytest.mark.parametrize("inner", [1, 31, 97, 260])
@pytest.mark.parametrize("width", [1, 15, 100])
def test_sizes(width: int, inner: int, tmp_path: Path) -> None:
    Case(width=width, inner=inner, bias=True, residual=True).check(tmp_path)


@pytest.mark.parametrize("type", TYPES)
def test_formats(type: GgmlType, tmp_path: Path) -> None:
    """Experts of every format; columns of one, of several and of many tokens."""
    size = max(32, type.block_size)
    Case(type=type, width=size, inner=2 * size, experts=3, tokens=20, bias=True).check(tmp_path)


def test_formats_side_by_side(tmp_path: Path) -> None:
    """Gate and up as floats, down in blocks; and the other way round."""
    sizes = Case(width=64, inner=32, experts=4, residual=True)
    replace(sizes, type=GgmlType.F16, down_type=GgmlType.Q8_0).check(tmp_path)
    replace(sizes, type=GgmlType.Q4_0, down_type=GgmlType.F32).check(tmp_path)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads(threads: int, tmp_path: Path) -> None:
    case = Case(threads=threads, experts=9, used=3, inner=300, width=64, tokens=40)
    replace(case, type=GgmlType.Q8_0, inner=320).check(tmp_path)
    replace(case, bias=True, residual=True).check(tmp_path)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_any_layer(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    experts = data.draw(st.integers(1, 20), "experts")
    Case(
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
    ).check(tmp_path_factory.mktemp("experts"))


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


@pytest.mark.parametrize("width", [1, 16, 45])
@pytest.mark.parametrize("residual", [False, True])
def test_gated_rows(width: int, residual: bool, tmp_path: Path) -> None:
    small = SmallGraph()
    x = small.embed(small.random(9, width + 1, scale=4))
    gate, source, out = small.pick(x, 0, 1), small.pick(x, 1, width + 1), small.value(width)
    small.ops.append(o.GateRows(source=source, gate=gate, out=out))
    result = small.add(source, out) if residual else out
    graph, model = small.build(small.select(result), tmp_path / "rows.gguf")
    with model:
        expected = expected_logits(graph, model, range(9))
        for isa in ISAS:
            with using_isa(isa):
                runner = Runner(graph, model, max_tokens=9)
                assert_near(runner.run(list(range(9)), generated=3), expected, FLOAT)


def test_experts_stand_behind_their_route(tmp_path: Path) -> None:
    """Tokens are sorted for the latest route alone."""
    small, _ = Case().build()
    first = next(op for op in small.ops if isinstance(op, o.Route))
    at = small.ops.index(first) + 1
    small.ops.insert(at, replace(first, out=o.Value("another", first.out.width)))
    graph, model = small.build(small.ops[-1].outputs[0], tmp_path / "experts.gguf")
    with model, pytest.raises(ValueError, match="behind the route that chooses them"):
        Runner(graph, model)


def test_too_many_experts_for_a_token(tmp_path: Path) -> None:
    small, logits = Case(experts=70, used=65).build()
    graph, model = small.build(logits, tmp_path / "experts.gguf")
    with model, pytest.raises(ValueError, match="a choice of 65 of 70 experts"):
        Runner(graph, model)
