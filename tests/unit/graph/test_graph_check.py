"""A graph that cannot run is refused when it is made, with what is wrong and where."""

from dataclasses import replace

import pytest

from ingot.errors import GraphError, IngotError
from ingot.graph import ComputationGraph, KvLayer
from ingot.graph import ops as o

X, LOGITS = o.Value("x", 6), o.Value("logits", 6)
EMBED = o.Embed(weight=o.Weight("embed", (9, 6)), out=X)
LINEAR = o.Linear(source=X, out=o.Value("y", 6), weight=o.Weight("w", (6, 6)))
NORM = o.Norm(
    source=X,
    out=o.Value("n", 6),
    weight=o.Weight("norm", (3,)),
    kind=o.NormKind.RMS,
    epsilon=1e-6,
)
ROPE = o.Rope(
    source=X,
    out=o.Value("r", 6),
    head_size=3,
    frequencies=(0.1,),
    layout=o.RopeLayout.INTERLEAVED,
)
WRITE = o.WriteKv(key=X, value=X, kv_layer=0)
ATTEND = o.Attend(query=X, out=o.Value("a", 6), kv_layer=0, heads=2, kv_heads=2, scale=1.0)
SOFTCAP = o.SoftCap(source=X, out=o.Value("c", 6), cap=3.0)
ADD = o.Add(left=X, right=X, out=o.Value("s", 6))
ACTIVATE = o.Activate(gate=X, up=X, out=o.Value("g", 6), kind=o.Activation.SILU)
LAYERS = (KvLayer(2, 3, 0),)


def make(*ops: o.Op, logits: o.Value = LOGITS) -> ComputationGraph:
    """The operations between an embedding and a selection of the last value."""
    written = [value for op in ops for value in op.outputs]
    select = o.Select(source=written[-1] if written else X, out=LOGITS)
    return ComputationGraph((EMBED, *ops, select), logits, LAYERS, 8)


def test_well_formed() -> None:
    graph = make(LINEAR, NORM, ROPE, WRITE, ATTEND, SOFTCAP, ADD, ACTIVATE)
    assert [value.name for value in graph.values()] == [
        "x", "y", "n", "r", "a", "c", "s", "g", "logits",
    ]  # fmt: skip
    assert [weight.name for weight in graph.weights()] == ["embed", "w", "norm"]
    assert graph.vocabulary_size == 9


def test_the_vocabulary_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request asks for it, and a model has hundreds of operations."""
    graph = make(LINEAR, NORM, ROPE)
    assert graph.vocabulary_size == 9
    monkeypatch.setattr(o.Embed, "token_ids", 10)
    assert graph.vocabulary_size == 9
    assert make(LINEAR, NORM, ROPE).vocabulary_size == 10


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        ([replace(LINEAR, source=o.Value("z", 6))], "Linear of y reads z before it is written"),
        ([LINEAR, LINEAR], "Linear of y writes y a second time"),
        ([replace(LINEAR, weight=o.Weight("w", (6, 5)))], r"Linear of y: .*x 6, y 6; w \(6, 5\)"),
        ([replace(LINEAR, bias=o.Weight("b", (5,)))], "sizes do not fit"),
        ([replace(NORM, weight=o.Weight("norm", (4,)))], "Norm of n: sizes do not fit"),
        ([replace(NORM, bias=o.Weight("b", (6,)))], "sizes do not fit"),
        ([replace(NORM, weight=o.Weight("norm", (3, 3)))], "sizes do not fit"),
        ([replace(NORM, weight=o.Weight("norm", (1, 2, 3)))], "sizes do not fit"),
        ([replace(LINEAR, weight=o.Weight("w", (6, 6), 3, 8))], "sizes do not fit"),
        ([WRITE, replace(ATTEND, chunked=True)], "sizes do not fit"),
        (
            [WRITE, replace(ATTEND, chunked=True, window=2, causal=False)],
            "Attend of a: sizes do not fit",
        ),
        ([replace(NORM, out=o.Value("n", 3))], "sizes do not fit"),
        ([replace(ROPE, head_size=4)], "Rope of r: sizes do not fit"),
        ([replace(ROPE, frequencies=(0.1, 0.2))], "sizes do not fit"),
        ([replace(SOFTCAP, cap=0.0)], "SoftCap of c: sizes do not fit"),
        ([replace(ADD, out=o.Value("s", 5))], "Add of s: sizes do not fit"),
        ([replace(ACTIVATE, out=o.Value("g", 5))], "sizes do not fit"),
        ([replace(WRITE, kv_layer=1)], "WriteKv of x: there is no cache for layer 1"),
        ([replace(WRITE, kv_layer=-1)], "no cache for layer -1"),
        ([WRITE, WRITE], "layer 0 is stored a second time"),
        ([ATTEND], "Attend of a: layer 0 is read before it is stored"),
        ([WRITE, replace(ATTEND, kv_layer=3)], "no cache for layer 3"),
        ([WRITE, replace(ATTEND, heads=3)], "3 heads over 2, width 6 to 6, window 0 do not fit"),
        ([WRITE, replace(ATTEND, kv_heads=1)], "which keeps 2 heads of 3, window 0"),
        ([WRITE, replace(ATTEND, window=5)], "window 5 do not fit"),
        ([WRITE, replace(ATTEND, sinks=o.Weight("s", (3,)))], "Attend of a: sizes do not fit"),
    ],
)  # fmt: skip
def test_refused(ops: list[o.Op], message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        make(*ops)
    assert isinstance(caught.value, IngotError)


def test_keys_of_another_width() -> None:
    narrow = o.Value("k", 3)
    key = o.Linear(source=X, out=narrow, weight=o.Weight("w", (3, 6)))
    with pytest.raises(GraphError, match="layer 0 keeps keys of 6 and values of 6 elements"):
        make(key, replace(WRITE, key=narrow), LINEAR)


def test_an_embedding_of_another_width() -> None:
    with pytest.raises(GraphError, match="Embed of x: sizes do not fit"):
        ComputationGraph((replace(EMBED, out=o.Value("x", 5)),), LOGITS, (), 8)


def test_logits_must_be_written_and_selected() -> None:
    with pytest.raises(GraphError, match=r"no operation writes the logits \(other\)"):
        make(logits=o.Value("other", 6))
    with pytest.raises(GraphError, match=r"no operation writes the logits \(x\) after a Select"):
        make(logits=X)


def test_all_tokens_and_selected_ones_do_not_mix() -> None:
    chosen = o.Value("chosen", 6)
    select = o.Select(source=X, out=chosen)
    with pytest.raises(GraphError, match="Add of s mixes all tokens with the selected ones"):
        make(select, replace(ADD, right=chosen))
    with pytest.raises(GraphError, match="needs all tokens and gets the selected ones"):
        make(select, replace(WRITE, key=chosen, value=chosen))
    with pytest.raises(GraphError, match="Select of logits needs all tokens"):
        make(select)
