"""What the table cannot say of sequences: those that are seen whole, and runs without a state."""

from pathlib import Path

import numpy as np
import pytest

from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.reference import Cache, Reference
from ingot.errors import ModelError
from ops.attention import FLOAT, AttentionCase
from ops.recurrent import Conv
from ops.small_graph import assert_near, expected_logits
from run_batches import Runner


@pytest.mark.usefixtures("isa")
def test_sequences_that_are_seen_whole(tmp_path: Path) -> None:
    """In one batch none sees another; none can be continued."""
    small, logits = AttentionCase(causal=False, tokens=40).build()
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


def test_a_run_without_a_state_is_refused(tmp_path: Path) -> None:
    """Where a step begins and where it ends there must be a block; between them there need not."""
    small, logits = Conv(channels=3).build()
    graph, model = small.build(logits, tmp_path / "conv.gguf")
    with model:
        runner = Runner(graph, model, positions=128)

        def step(first: int, count: int, table: list[int]) -> None:
            runner.backend.forward(
                Batch(
                    ids=np.zeros(count, np.int32),
                    positions=np.arange(first, first + count, dtype=np.int32),
                    counts=np.array([count], np.int32),
                    tables=[[np.array(table, np.int32)]],
                    outputs=np.zeros(1, np.int32),
                    phase=ExecutionPhase.PROMPT,
                )
            )

        step(0, 70, [-1, -1, 2])
        step(70, 30, [-1, -1, 2, 3])
        step(96, 2, [-1, -1, 0, 1])
        for first, count, table in ((0, 70, [0, 1, -1]), (64, 2, [-1, -1, 0]), (65, 1, [0, 0, -1])):
            with pytest.raises(ValueError, match="has no state"):
                step(first, count, table)
        with pytest.raises(ValueError, match="is not in the cache"):
            step(0, 70, [-2, 0, 1])
