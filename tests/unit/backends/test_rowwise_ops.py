"""Operations on single rows: the CPU backend against the reference, one at a time.

Every graph ends in a `Select`, which is where a model's last layer cuts off the tokens that
nobody asks about; a value that is read by nothing else becomes the logits.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_graphs import SmallGraph, assert_near, expected_logits

from ingot import _native
from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.reference import Reference
from ingot.errors import ModelError
from ingot.gguf import GgmlType
from ingot.graph import ops as o
from run_batches import GENERATION, Runner, using_isa

WIDTHS = [1, 2, 15, 16, 17, 63, 64, 65, 100, 257]
IDS = [3, 0, 4, 4, 1, 2, 0]
NORM = 1e-5  # DESIGN allows 1e-4; sums of float32 in sixteen lanes do better
FLOAT_PRODUCT = 1e-5
QUANTIZED_PRODUCT = 1e-3  # inputs are rounded to 14 (prompt) or 15 bits
PRODUCT_IN_TILES = 3e-2  # AMX rounds a prompt's weights and inputs to BF16


def check(small: SmallGraph, logits: o.Value, folder: Path, relative: float) -> None:
    """Both phases on every instruction set give what the reference does."""
    graph, model = small.build(logits, folder / "small.gguf")
    with model:
        expected = expected_logits(graph, model, IDS)
        for isa in _native.instruction_sets():
            with using_isa(isa):
                runner = Runner(graph, model, max_tokens=len(IDS))
                in_tiles = isa == "amx" and relative == QUANTIZED_PRODUCT
                bound = PRODUCT_IN_TILES if in_tiles else relative
                assert_near(runner.run(IDS, chunks=[3]), expected, bound)
                assert_near(runner.run(IDS, generated=3), expected, bound)


@pytest.mark.parametrize("width", WIDTHS)
def test_embedding(width: int, tmp_path: Path) -> None:
    small = SmallGraph()
    x = small.embed(small.random(5, width), scale=width**0.5)
    check(small, small.select(x), tmp_path, 1e-6)


@pytest.mark.parametrize("type", [GgmlType.F16, GgmlType.Q4_K, GgmlType.Q6_K, GgmlType.IQ4_XS])
def test_quantized_embedding(type: GgmlType, tmp_path: Path) -> None:
    small = SmallGraph()
    out = small.value(512)
    weight = small.weight(small.random(5, 512), type)
    small.ops.append(o.Embed(weight=weight, out=out))
    check(small, small.select(out), tmp_path, 1e-6)


@pytest.mark.parametrize("type", [GgmlType.F32, GgmlType.F16, GgmlType.Q8_0])
@pytest.mark.parametrize(("positions", "kind"), [(True, False), (False, True), (True, True)])
def test_embedding_of_positions_and_type(
    positions: bool, kind: bool, type: GgmlType, tmp_path: Path
) -> None:
    """Rows of other tables are added; of the types, the first where nothing is said."""
    small = SmallGraph()
    out = small.value(96)
    types = small.weight(small.random(3, 96), type)
    small.ops.append(
        o.Embed(
            weight=small.weight(small.random(5, 96), type),
            out=out,
            scale=1.5,
            positions=small.weight(small.random(1024, 96), type) if positions else None,
            types=types if kind else None,
        )
    )
    check(small, small.select(out), tmp_path, 1e-6)


def test_types_of_tokens(tmp_path: Path) -> None:
    small = SmallGraph()
    out = small.value(10)
    weight, types = small.weight(small.random(5, 10)), small.weight(small.random(3, 10))
    small.ops.append(o.Embed(weight=weight, out=out, types=types))
    graph, model = small.build(small.select(out), tmp_path / "small.gguf")
    with model:
        runner = Runner(graph, model)
        expected = Reference(graph, model).forward([1, 2, 3], types=[2, 0, 1])
        np.testing.assert_array_equal(runner.step({0: [1, 2, 3]}, types=[2, 0, 1])[0], expected)
        for wrong in ([0, 0], [0, 0, 3], [0, -1, 0]):
            with pytest.raises(ValueError, match="type"):
                runner.step({1: [1, 2, 3]}, types=wrong)


def test_a_context_longer_than_the_learned_positions(tmp_path: Path) -> None:
    small = SmallGraph()
    out = small.value(8)
    table, positions = small.weight(small.random(5, 8)), small.weight(small.random(64, 8))
    small.ops.append(o.Embed(weight=table, out=out, positions=positions))
    graph, model = small.build(small.select(out), tmp_path / "small.gguf")
    with model:
        assert len(Runner(graph, model, positions=64).run([1, 2])) == 2
        with pytest.raises(ValueError, match="65 tokens for 64 learned positions"):
            Runner(graph, model, positions=65)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", o.NormKind)
@pytest.mark.parametrize("width", WIDTHS)
def test_norm(kind: o.NormKind, width: int, bias: bool, tmp_path: Path) -> None:
    """Rows far from zero and rows so small that epsilon decides."""
    small = SmallGraph()
    rows = small.random(5, width) * np.float32([[1], [1], [1e-3], [1e4], [1]])
    rows[1] += 3
    rows[4] = 0
    x = small.embed(rows)
    out = small.value(width)
    small.ops.append(
        o.Norm(
            source=x,
            out=out,
            weight=small.weight(small.random(width, offset=1, scale=0.3)),
            bias=small.weight(small.random(width)) if bias else None,
            kind=kind,
            epsilon=1e-5,
        )
    )
    check(small, small.select(out), tmp_path, NORM)


@pytest.mark.parametrize("run", [1, 7, 16, 40])
def test_norm_of_runs(run: int, tmp_path: Path) -> None:
    """The weight is as long as a head: each head is normalized by itself."""
    small = SmallGraph()
    x = small.embed(small.random(5, 3 * run) * np.repeat(np.float32([1, 10, 0.1]), run))
    out = small.value(x.width)
    weight = small.weight(small.random(run, offset=1))
    small.ops.append(o.Norm(source=x, out=out, weight=weight, kind=o.NormKind.RMS, epsilon=1e-6))
    check(small, small.select(out), tmp_path, NORM)


@pytest.mark.parametrize("kind", o.NormKind)
@pytest.mark.parametrize("run", [1, 7, 16, 40])
def test_norm_of_runs_by_their_own_weights(run: int, kind: o.NormKind, tmp_path: Path) -> None:
    """The weight has a row for each head."""
    small = SmallGraph()
    x = small.embed(small.random(5, 3 * run) * np.repeat(np.float32([1, 10, 0.1]), run))
    out = small.value(x.width)
    weight, bias = (small.weight(small.random(3, run, offset=1)) for _ in range(2))
    small.ops.append(o.Norm(source=x, out=out, weight=weight, bias=bias, kind=kind, epsilon=1e-3))
    check(small, small.select(out), tmp_path, NORM)


@pytest.mark.parametrize("rows", [1, 15, 16, 33, 130])
@pytest.mark.parametrize("width", [1, 31, 100])
def test_float_linear(rows: int, width: int, tmp_path: Path) -> None:
    small = SmallGraph()
    x = small.embed(small.random(5, width))
    y = small.linear(small.select(x), small.random(rows, width), small.random(rows))
    check(small, y, tmp_path, FLOAT_PRODUCT)


@pytest.mark.parametrize("residual", [False, True])
def test_scaled_linear(residual: bool, tmp_path: Path) -> None:
    """Bias and product are scaled, what is added to them is not."""
    small = SmallGraph()
    x = small.embed(small.random(5, 50))
    y = small.value(50)
    weight, bias = small.weight(small.random(50, 50)), small.weight(small.random(50))
    small.ops.append(o.Linear(source=x, out=y, weight=weight, bias=bias, scale=0.3))
    check(small, small.select(small.add(x, y) if residual else y), tmp_path, FLOAT_PRODUCT)


def test_scaled_gate_and_up(tmp_path: Path) -> None:
    small = SmallGraph()
    x, parts = small.embed(small.random(5, 50)), []
    for scale in (0.3, 2.0):
        parts.append(small.value(70))
        weight, bias = small.weight(small.random(70, 50)), small.weight(small.random(70))
        linear = o.Linear(source=x, out=parts[-1], weight=weight, bias=bias, scale=scale)
        small.ops.append(linear)
    out = small.value(70)
    small.ops.append(o.Activate(gate=parts[0], up=parts[1], out=out, kind=o.Activation.SILU))
    check(small, small.select(out), tmp_path, FLOAT_PRODUCT)


@pytest.mark.parametrize("type", [GgmlType.F32, GgmlType.F16, GgmlType.Q8_0, GgmlType.Q4_K])
@pytest.mark.parametrize("gated", [False, True])
def test_parts_of_one_tensor(gated: bool, type: GgmlType, tmp_path: Path) -> None:
    """Two linear maps are rows of the same matrix and of the same bias."""
    small = SmallGraph()
    x = small.embed(small.random(5, 256))
    first, second = (37, 37) if gated else (37, 70)
    matrix = small.weight(small.random(first + second, 256, scale=0.1), type)
    bias = small.weight(small.random(first + second))
    parts = []
    for at, rows in ((0, first), (first, second)):
        parts.append(small.value(rows))
        small.ops.append(
            o.Linear(
                source=x,
                out=parts[-1],
                weight=o.Weight(matrix.name, (rows, 256), at, first + second),
                bias=o.Weight(bias.name, (rows,), at, first + second),
            )
        )
    if gated:
        out = small.value(first)
        kind = o.Activation.GELU_TANH
        small.ops.append(o.Activate(gate=parts[0], up=parts[1], out=out, kind=kind))
    else:
        left, right = (small.linear(part, small.random(19, part.width)) for part in parts)
        out = small.add(left, right)
    check(small, small.select(out), tmp_path, QUANTIZED_PRODUCT)


@pytest.mark.parametrize("norm", [False, True])
def test_linears_of_one_input(norm: bool, tmp_path: Path) -> None:
    """Three matrices of different sizes and types, one with a bias, share their input."""
    small = SmallGraph()
    x = small.embed(small.random(5, 256, scale=2))
    stream = x
    if norm:
        x = small.value(256)
        weight = small.weight(small.random(256, offset=1, scale=0.2))
        small.ops.append(
            o.Norm(source=stream, out=x, weight=weight, kind=o.NormKind.RMS, epsilon=1e-6)
        )
    parts = [
        small.linear(x, small.random(70, 256), small.random(70), GgmlType.Q8_0),
        small.linear(x, small.random(33, 256), None, GgmlType.Q4_K),
        small.linear(x, small.random(50, 256), None, GgmlType.F16),
    ]
    joined = small.linear(parts[0], small.random(19, 70))
    for part in parts[1:]:
        joined = small.add(joined, small.linear(part, small.random(19, part.width)))
    check(small, small.select(joined), tmp_path, QUANTIZED_PRODUCT)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("kind", o.Activation)
@pytest.mark.parametrize("width", [1, 17, 100])
def test_activation(kind: o.Activation, gated: bool, width: int, tmp_path: Path) -> None:
    small = SmallGraph()
    rows = small.random(5, 2 * width, scale=3)
    rows[0] = 0
    rows[1, :width] = np.linspace(-30, 30, width)
    x = small.embed(rows)
    gate, up, out = small.pick(x, 0, width), None, small.value(width)
    if gated:
        up = small.pick(x, width, 2 * width)
        out = small.value(width)
    small.ops.append(o.Activate(gate=gate, up=up, out=out, kind=kind))
    check(small, small.select(out), tmp_path, 2e-6)


@pytest.mark.parametrize("types", [(GgmlType.F32, GgmlType.F32), (GgmlType.Q4_0, GgmlType.Q6_K)])
def test_gate_and_up_with_biases(types: tuple[GgmlType, GgmlType], tmp_path: Path) -> None:
    small = SmallGraph()
    x = small.embed(small.random(5, 256))
    gate = small.linear(x, small.random(75, 256, scale=0.1), small.random(75), types[0])
    up = small.linear(x, small.random(75, 256, scale=0.1), small.random(75), types[1])
    out = small.value(75)
    small.ops.append(o.Activate(gate=gate, up=up, out=out, kind=o.Activation.SILU))
    check(small, small.select(out), tmp_path, QUANTIZED_PRODUCT)


@pytest.mark.usefixtures("isa")
def test_many_narrow_rows_gated(tmp_path: Path) -> None:
    """Rows so short that thousands of them are one piece of work, as many tokens as fit."""
    small = SmallGraph()
    x = small.embed(small.random(5, 3))
    gate, up = (small.linear(x, small.random(3000, 3)) for _ in range(2))
    out = small.value(3000)
    small.ops.append(o.Activate(gate=gate, up=up, out=out, kind=o.Activation.SILU))
    graph, model = small.build(small.select(out), tmp_path / "small.gguf")
    with model:
        runner = Runner(graph, model, max_tokens=5, sequences=5, positions=32)
        logits = runner.step({token: [token] for token in range(5)}, GENERATION)
        assert_near(
            np.concatenate(list(logits.values())),
            expected_logits(graph, model, range(5)),
            FLOAT_PRODUCT,
        )


def test_residual_of_linear_and_of_norm(tmp_path: Path) -> None:
    small = SmallGraph()
    stream = small.embed(small.random(5, 50))
    stream = small.add(stream, small.linear(stream, small.random(50, 50), small.random(50)))
    normed = small.value(50)
    weight = small.weight(small.random(50, offset=1))
    small.ops.append(
        o.Norm(source=stream, out=normed, weight=weight, kind=o.NormKind.RMS, epsilon=1e-6)
    )
    stream = small.add(stream, normed)
    check(small, small.select(stream), tmp_path, FLOAT_PRODUCT)


@pytest.mark.parametrize("width", [1, 16, 97])
def test_softcap(width: int, tmp_path: Path) -> None:
    small = SmallGraph()
    x = small.select(small.embed(small.random(5, width, scale=40)))
    out = small.value(width)
    small.ops.append(o.SoftCap(source=x, out=out, cap=30.0))
    check(small, out, tmp_path, 2e-6)


@pytest.mark.usefixtures("isa")
def test_select_takes_the_wanted_rows_in_their_order(tmp_path: Path) -> None:
    small = SmallGraph()
    rows = small.random(9, 21)
    graph, model = small.build(small.select(small.embed(rows)), tmp_path / "small.gguf")
    with model:
        backend = Runner(graph, model).backend
        ids = np.arange(9, dtype=np.int32)
        for wanted in ([0], [8], [1, 4, 7], [6, 2, 2], []):
            batch = Batch(
                ids=ids,
                positions=ids,
                counts=np.array([9], np.int32),
                tables=[[]],
                outputs=np.array(wanted, np.int32),
                phase=ExecutionPhase.PROMPT,
            )
            np.testing.assert_array_equal(backend.forward(batch), rows[wanted])


def test_rows_that_are_handed_in(tmp_path: Path) -> None:
    """A graph may begin with them; one that does not has no use for them."""
    small = SmallGraph()
    taken = small.value(17)
    small.ops.append(o.TakeRows(out=taken))
    out = small.linear(taken, small.random(5, 17))
    graph, model = small.build(small.select(out), tmp_path / "small.gguf")
    rows = small.random(4, 17)
    batch = Batch(
        ids=np.full(4, 1 << 30, np.int32),  # which nobody looks up
        positions=np.arange(4, dtype=np.int32),
        counts=np.array([4], np.int32),
        tables=[[]],
        outputs=np.array([3, 1], np.int32),
        phase=ExecutionPhase.PROMPT,
        rows=rows,
    )
    with model:
        backend = Runner(graph, model).backend
        expected = Reference(graph, model).forward([0] * 4, outputs=[3, 1], rows=rows)
        assert_near(backend.forward(batch), expected, FLOAT_PRODUCT)
        for wrong in (None, rows[:3], rows[:, :16].copy(), rows.astype(np.float64)):
            with pytest.raises(ValueError, match="rows"):
                backend.forward(replace(batch, rows=wrong))
        for wrong in (None, rows[:3]):
            with pytest.raises(ModelError, match="begins with 4 rows of 17"):
                Reference(graph, model).forward([0] * 4, rows=wrong)
    small = SmallGraph()
    x = small.embed(small.random(5, 17))
    graph, model = small.build(small.select(x), tmp_path / "other.gguf")
    with model, pytest.raises(ValueError, match="rows are for a program that takes them"):
        Runner(graph, model).backend.forward(replace(batch, ids=np.zeros(4, np.int32)))
