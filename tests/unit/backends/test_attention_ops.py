"""Attention, rotary turns and the cache: the CPU backend against the reference.

One row of the embedding holds a token's query, key and value. Scores are made large enough
that the softmax is neither flat nor decided by one position.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_graphs import SmallGraph, assert_near, expected_logits

from ingot import _native
from ingot.backends.reference import Cache, Reference
from ingot.errors import ModelError
from ingot.graph import KvLayer, rope
from ingot.graph import ops as o
from ingot.graph.kv_type import KvType
from run_batches import Runner, using_isa

ISAS = _native.instruction_sets()
KV_TYPES = [kind for kind in KvType if kind.ggml is not None]
# DESIGN allows a softmax 1e-3. Keys and values are rounded to the cache's type alike on
# both sides, so that its bits do not count.
FLOAT = 1e-4


@dataclass(frozen=True, kw_only=True)
class Case:
    """An attention and how much of it to run."""

    heads: int = 2
    kv_heads: int = 1
    size: int = 16
    tokens: int = 40
    window: int = 0
    softcap: float = 0.0
    sinks: bool = False
    causal: bool = True
    scale: float | None = None
    kv_type: KvType = KvType.F32
    norms: bool = False
    speeds: tuple[float, ...] = ()
    magnitude: float = 1.0
    layout: o.RopeLayout = o.RopeLayout.HALVES
    seed: int = 0
    chunks: tuple[int, ...] = ()
    generated: int = 0
    threads: int = 1

    def build(self) -> tuple[SmallGraph, o.Value]:
        small = SmallGraph(self.seed)
        query, key = self.heads * self.size, self.kv_heads * self.size
        rows = small.random(self.tokens, query + 2 * key)
        x = small.embed(rows)
        q = small.pick(x, 0, query)
        k = small.pick(x, query, query + key)
        v = small.pick(x, query + key, query + 2 * key)
        if self.norms:
            q, k = (self.norm(small, value) for value in (q, k))
        if self.speeds:
            q, k = (self.turn(small, value) for value in (q, k))
        small.kv_layers.append(KvLayer(self.kv_heads, self.size, self.window))
        small.ops.append(o.WriteKv(key=k, value=v, layer=0))
        out = small.value(query)
        small.ops.append(
            o.Attend(
                query=q,
                out=out,
                layer=0,
                heads=self.heads,
                kv_heads=self.kv_heads,
                scale=2 * self.size**-0.5 if self.scale is None else self.scale,
                window=self.window,
                softcap=self.softcap,
                sinks=small.weight(small.random(self.heads, scale=4)) if self.sinks else None,
                causal=self.causal,
            )
        )
        return small, small.select(out)

    def norm(self, small: SmallGraph, source: o.Value) -> o.Value:
        out = small.value(source.width)
        weight = small.weight(small.random(self.size, offset=1, scale=0.2))
        small.ops.append(
            o.Norm(source=source, out=out, weight=weight, kind=o.NormKind.RMS, epsilon=1e-6)
        )
        return out

    def turn(self, small: SmallGraph, source: o.Value) -> o.Value:
        out = small.value(source.width)
        small.ops.append(
            o.Rope(
                source=source,
                out=out,
                head_size=self.size,
                frequencies=self.speeds,
                layout=self.layout,
                magnitude=self.magnitude,
            )
        )
        return out

    def check(self, folder: Path, isas: Sequence[str] = ISAS) -> None:
        small, logits = self.build()
        graph, model = small.build(logits, folder / "attention.gguf")
        ids = list(range(self.tokens))
        with model:
            expected = expected_logits(graph, model, ids, self.kv_type)
            for isa in isas:
                with using_isa(isa):
                    runner = Runner(
                        graph,
                        model,
                        kv_type=self.kv_type,
                        threads=self.threads,
                        positions=self.tokens + 5,
                        max_tokens=max(self.tokens, 8),
                    )
                    assert_near(runner.run(ids, self.chunks, self.generated), expected, FLOAT)
                    assert runner.pool.free(0) == runner.pool.sizes[0]


HEADS = [(8, 8), (2, 1), (6, 2), (4, 1), (5, 1), (12, 2), (7, 1), (8, 1), (32, 1)]
HEADS += [(33, 1), (71, 1), (80, 2)]  # more for a key than rows in a tile


@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
def test_grouped_heads(heads: int, kv_heads: int, tmp_path: Path) -> None:
    Case(heads=heads, kv_heads=kv_heads, generated=5).check(tmp_path)


@pytest.mark.parametrize("size", [1, 3, 17, 32, 33, 64, 80, 100, 128, 256])
def test_head_sizes(size: int, tmp_path: Path) -> None:
    Case(size=size, heads=3, kv_heads=1, tokens=70, generated=3).check(tmp_path)


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("size", [32, 64, 96, 128, 256])
def test_cache_types(kv_type: KvType, size: int, tmp_path: Path) -> None:
    Case(size=size, heads=4, kv_heads=2, tokens=75, generated=4, kv_type=kv_type).check(tmp_path)


@pytest.mark.parametrize("window", [1, 2, 31, 32, 33, 50, 64, 100, 1000])
def test_windows(window: int, tmp_path: Path) -> None:
    """Short ones, whole blocks, and wider than the text; blocks are given back on the way."""
    Case(window=window, tokens=150, chunks=(1, 40, 70), generated=20, heads=3).check(tmp_path)


@pytest.mark.parametrize(
    "case",
    [
        Case(softcap=5.0, generated=4),
        Case(sinks=True, heads=6, kv_heads=2, generated=4),
        Case(sinks=True, window=7, softcap=3.0, generated=9),
        Case(scale=0.01, generated=4),
        Case(scale=5.0, generated=4),
        Case(tokens=1),
        Case(tokens=1, generated=1),
        Case(tokens=33, chunks=(1, 1, 29, 1), generated=1),
    ],
    ids=str,
)
def test_kinds_of_attention(case: Case, tmp_path: Path) -> None:
    case.check(tmp_path)


@pytest.mark.parametrize("tokens", [1, 2, 31, 32, 33, 65, 130, 600])
def test_both_ways(tokens: int, tmp_path: Path) -> None:
    """Every token sees its whole sequence."""
    Case(causal=False, tokens=tokens, heads=6, kv_heads=2, sinks=True, threads=2).check(tmp_path)


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_both_ways_in_every_cache(kv_type: KvType, tmp_path: Path) -> None:
    Case(causal=False, size=32, softcap=3.0, kv_type=kv_type).check(tmp_path)


@pytest.mark.usefixtures("isa")
def test_sequences_that_are_seen_whole(tmp_path: Path) -> None:
    """In one batch none sees another; none can be gone on with."""
    small, logits = Case(causal=False, tokens=40).build()
    graph, model = small.build(logits, tmp_path / "attention.gguf")
    with model:
        runner = Runner(graph, model, positions=64, sequences=3)
        texts = {"a": range(37), "b": [5], "c": [9, 9, 3, 1]}
        for name, rows in runner.step(texts).items():
            assert_near(rows, expected_logits(graph, model, texts[name]), FLOAT)
        with pytest.raises(ValueError, match="cannot be added to a sequence"):
            runner.step({"c": [2]})
        reference, cache = Reference(graph, model), Cache()
        reference.forward([1, 2], cache)
        with pytest.raises(ModelError, match="cannot be added to a sequence"):
            reference.forward([3], cache)


@pytest.mark.parametrize("tokens", [512, 513, 544, 1025, 1600])
@pytest.mark.parametrize("window", [0, 600])
def test_long_contexts(tokens: int, window: int, tmp_path: Path) -> None:
    """A generation looks at its past in parts of 512 positions."""
    case = Case(
        tokens=tokens,
        window=window,
        chunks=(500,),
        generated=3,
        sinks=True,
        kv_type=KvType.F16,
        threads=2,
    )
    case.check(tmp_path)


ROPES = {
    "plain": rope.frequencies(16, 10000.0),
    "partial": rope.frequencies(6, 10000.0),
    "linear": rope.frequencies(16, 10000.0, linear_factor=4.0),
    "factors": rope.frequencies(16, 500.0, factors=[1, 1, 1.5, 2, 4, 8, 8, 8]),
    "yarn": rope.frequencies(16, 10000.0, yarn=rope.Yarn(factor=4.0, original_context=32)),
}


@pytest.mark.parametrize("norms", [False, True])
@pytest.mark.parametrize("layout", o.RopeLayout)
@pytest.mark.parametrize("kind", ROPES)
def test_rotary_turns(kind: str, layout: o.RopeLayout, norms: bool, tmp_path: Path) -> None:
    speeds, magnitude = ROPES[kind]
    case = Case(
        heads=4,
        kv_heads=2,
        tokens=100,
        speeds=speeds,
        magnitude=magnitude,
        layout=layout,
        norms=norms,
        chunks=(33,),
        generated=5,
    )
    case.check(tmp_path)


def fitting(case: Case) -> Case:
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


CASES = st.builds(
    Case,
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
    kv_type=st.sampled_from(KV_TYPES),
).map(fitting)


@settings(max_examples=60, deadline=None)
@given(case=CASES, isa=st.sampled_from(ISAS))
def test_attention_of_any_kind(
    case: Case, isa: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    case.check(tmp_path_factory.mktemp("attention"), [isa])
