"""Latent attention in a graph: what the cache keeps, and what does not fit."""

from dataclasses import replace
from pathlib import Path

import pytest

from ingot.errors import GraphError
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph, KvLayer
from ingot.graph import ops as o
from ingot.graph.fusion import fuse
from ingot.graph.kv_layout import BLOCK_TOKENS, KvGroup, KvLayout
from ingot.graph.kv_type import KvType
from ingot.models import build_graph
from models.tiny_models import Fixture

HEADS, KEY, ROTARY, LATENT, VALUE = 2, 5, 4, 8, 3
X, LOGITS = o.Value("x", 6), o.Value("logits", HEADS * VALUE)
EMBED = o.Embed(weight=o.Weight("embed", (9, 6)), out=X)
QUERY, ROTATED, ROW = (
    o.Linear(source=X, out=o.Value(name, width), weight=o.Weight(name, (width, 6)))
    for name, width in (("q", HEADS * (KEY + ROTARY)), ("k", ROTARY), ("row", LATENT))
)
ABSORB = o.HeadLinear(
    source=QUERY.out,
    out=o.Value("absorbed", HEADS * (ROTARY + LATENT)),
    weight=o.Weight("k_b", (HEADS, LATENT, KEY)),
    heads=HEADS,
    first=0,
    rows=LATENT,
)
WRITE = o.WriteKv(key=ROTATED.out, value=ROW.out, kv_layer=0, shared=True)
ATTEND = o.Attend(
    query=ABSORB.out,
    out=o.Value("mixed", HEADS * LATENT),
    kv_layer=0,
    heads=HEADS,
    kv_heads=1,
    scale=0.3,
)
EXPAND = o.HeadLinear(
    source=ATTEND.out,
    out=o.Value("values", HEADS * VALUE),
    weight=o.Weight("v_b", (HEADS, VALUE, LATENT)),
    heads=HEADS,
    first=0,
    rows=VALUE,
)
ALL = (QUERY, ROTATED, ROW, ABSORB, WRITE, ATTEND, EXPAND)
LAYER = KvLayer(1, ROTARY + LATENT, 0, shared_value=LATENT)


def make(*ops: o.Op, layer: KvLayer = LAYER) -> ComputationGraph:
    select = o.Select(source=ops[-1].outputs[0], out=LOGITS)
    return ComputationGraph((EMBED, *ops, select), LOGITS, (layer,), 8)


def with_changed(op: o.Op, **changes: object) -> list[o.Op]:
    """All of them, one changed."""
    return [replace(each, **changes) if each is op else each for each in ALL]  # type: ignore[arg-type]


def test_a_token_takes_one_row() -> None:
    layout = KvLayout.of([LAYER], KvType.F16)
    assert layout.groups == (KvGroup(0, 2 * (ROTARY + LATENT) * BLOCK_TOKENS),)
    assert [type(op).__name__ for op in fuse(make(*ALL)).ops if op.cache_use] == [
        "StoreKv",
        "Attend",
    ]


def test_the_largest_models_keep_576_values(tmp_path: Path) -> None:
    """Of a token and a layer, for all heads: 1,152 bytes in half floats."""
    with GgufLoader(Fixture.load("deepseek2").write(tmp_path / "model.gguf")) as model:
        layers = build_graph(model).kv_layers
    latent, rotary = 36, 8
    assert {(each.heads, each.head_size, each.shared_value) for each in layers} == {
        (1, latent + rotary, latent)
    }
    large = KvLayout.of([KvLayer(1, 576, 0, shared_value=512)], KvType.F16)
    assert large.groups[0].block_bytes == 1152 * BLOCK_TOKENS


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        (with_changed(ABSORB, rows=LATENT - 1), "HeadLinear of absorbed: sizes do not fit"),
        (with_changed(ABSORB, first=1), "sizes do not fit"),
        (with_changed(ABSORB, heads=3), "sizes do not fit"),
        (with_changed(ABSORB, transposed=True), "sizes do not fit"),
        (with_changed(ABSORB, weight=o.Weight("k_b", (HEADS, LATENT, 99))), "sizes do not fit"),
        (with_changed(WRITE, shared=False), "keeps keys of 4 and values of 8 elements"),
        (with_changed(WRITE, key=ROW.out), "keeps keys of 4 and values of 8 elements"),
        (with_changed(ATTEND, kv_heads=2), "do not fit layer 0"),
    ],
)
def test_what_is_refused(ops: list[o.Op], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        make(*ops)


def test_a_layer_that_keeps_values_too() -> None:
    with pytest.raises(GraphError, match="keeps keys of 12 and values of 12 elements"):
        make(*ALL, layer=KvLayer(1, ROTARY + LATENT, 0))
