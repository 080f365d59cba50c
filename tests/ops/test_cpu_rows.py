"""What the table cannot say of operations on rows: types of tokens, selections, rows handed in."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.reference import Reference
from ingot.errors import ModelError
from ingot.graph import ops as o
from ops.linear import FLOAT
from ops.small_graph import SmallGraph, assert_near, expected_logits
from run_batches import GENERATION, Runner


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
            FLOAT,
        )


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
        assert_near(backend.forward(batch), expected, FLOAT)
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
