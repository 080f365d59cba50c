"""Convolutions and state spaces: the CPU backend against the reference, on odd sizes.

One row of the embedding holds all that an operation reads of a token.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_graphs import SmallGraph, assert_near, expected_logits

from ingot import _native
from ingot.backends.batch import Batch, ExecutionPhase
from ingot.graph import ops as o
from run_batches import Runner, using_isa

ISAS = _native.instruction_sets()
FLOAT = 2e-5


@dataclass(frozen=True, kw_only=True)
class Conv:
    """A convolution."""

    channels: int
    taps: int = 4
    tokens: int = 70

    def build(self) -> tuple[SmallGraph, o.Value]:
        small = SmallGraph(self.channels)
        source = small.embed(small.random(self.tokens, self.channels))
        out = small.value(self.channels)
        small.ops.append(
            o.CausalConv(
                source=source,
                out=out,
                weight=small.weight(small.random(self.channels, self.taps)),
                bias=small.weight(small.random(self.channels)),
                state=0,
            )
        )
        return small, small.select(out)


@dataclass(frozen=True, kw_only=True)
class Scan:
    """A state space."""

    heads: int
    size: int = 1
    groups: int = 1
    states: int = 16
    one_decay: bool = False
    tokens: int = 70

    def build(self) -> tuple[SmallGraph, o.Value]:
        small = SmallGraph(self.heads + self.states)
        channels, wide = self.heads * self.size, self.groups * self.states
        widths = [channels, self.heads, wide, wide]
        rows = small.random(self.tokens, sum(widths))
        steps = slice(channels, channels + self.heads)
        rows[:, steps] = np.abs(rows[:, steps]) * 0.5
        everything = small.embed(rows)
        ends = np.cumsum([0, *widths]).tolist()
        x, step, b, c = (small.pick(everything, *span) for span in pairwise(ends))
        out = small.value(channels)
        decay = small.random(self.heads, 1 if self.one_decay else self.states)
        skip = small.random(self.heads, 1) if self.one_decay else small.random(self.heads)
        small.ops.append(
            o.StateScan(
                x=x,
                step=step,
                b=b,
                c=c,
                out=out,
                decay=small.weight(-np.abs(decay)),
                skip=small.weight(skip),
                groups=self.groups,
                state=0,
            )
        )
        return small, small.select(out)


CONVS = [Conv(channels=n, taps=k) for n, k in [(1, 4), (7, 3), (16, 2), (37, 4), (300, 5)]]
CONVS += [Conv(channels=5, taps=40, tokens=90)]  # more taps than a run has tokens
SCANS = [
    Scan(heads=37),
    Scan(heads=1, states=1),
    Scan(heads=150, states=3),
    Scan(heads=6, size=11, groups=3, states=7, one_decay=True),
    Scan(heads=4, size=16, groups=2, states=33, one_decay=True),
    Scan(heads=3, size=64, states=128, one_decay=True, tokens=40),
    Scan(heads=6, size=5, groups=2, states=9),
]


@pytest.mark.parametrize("case", [*CONVS, *SCANS], ids=str)
def test_matches_the_reference(case: Conv | Scan, tmp_path: Path) -> None:
    """Whole, in chunks shorter than the taps and across runs, and token by token."""
    small, logits = case.build()
    graph, model = small.build(logits, tmp_path / "recurrent.gguf")
    ids = list(range(case.tokens))
    with model:
        expected = expected_logits(graph, model, ids)
        for isa in ISAS:
            with using_isa(isa):
                runner = Runner(graph, model, positions=case.tokens + 5)
                whole = runner.run(ids)
                assert_near(whole, expected, FLOAT)
                for chunks, generated in (((1, 2, 30, 1, 1), 0), ((31,), 8), ((), case.tokens)):
                    found = runner.run(ids, chunks, generated)
                    np.testing.assert_array_equal(found, whole)
                assert runner.pool.free(0) == runner.pool.sizes[0]


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_sizes(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    draw = data.draw
    groups = draw(st.integers(1, 3))
    case = Scan(
        heads=groups * draw(st.integers(1, 9)),
        size=draw(st.sampled_from([1, 2, 3, 15, 16, 17, 32])),
        groups=groups,
        states=draw(st.integers(1, 20)),
        one_decay=draw(st.booleans()),
        tokens=draw(st.integers(1, 40)),
    )
    small, logits = case.build()
    graph, model = small.build(logits, tmp_path_factory.mktemp("any") / "recurrent.gguf")
    ids = list(range(case.tokens))
    with model, using_isa(draw(st.sampled_from(ISAS))):
        runner = Runner(graph, model, threads=draw(st.integers(1, 3)), positions=case.tokens)
        assert_near(runner.run(ids), expected_logits(graph, model, ids), FLOAT)


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
