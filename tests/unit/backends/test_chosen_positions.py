"""Sparse attention on the CPU: what an indexer chooses, and contexts with nothing to choose."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ingot.graph.kv_type import KvType
from ops.case import Case
from ops.cpu import runner_of
from ops.indexed import IndexedCase
from run_batches import GENERATION, Runner

ALL = IndexedCase(tokens=70, count=70, latent=56, index_size=32)


def logits(
    case: Case, folder: Path, chunks: tuple[int, ...], generated: int
) -> NDArray[np.float32]:
    with case.opened(folder) as (graph, model):
        return runner_of(case, graph, model).run(case.ids, chunks, generated)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("kind", [KvType.F32, KvType.F16, KvType.Q8_0])
@pytest.mark.parametrize(("chunks", "generated"), [((), 0), ((33, 7), 0), ((20,), 40)])
def test_a_context_that_is_not_longer_than_the_choice(
    kind: KvType, chunks: tuple[int, ...], generated: int, tmp_path: Path
) -> None:
    """It is dense attention, to the last bit."""
    sparse = replace(ALL, kv_type=kind)
    found = logits(sparse, tmp_path, chunks, generated)
    dense = logits(replace(sparse, dense=True), tmp_path, chunks, generated)
    np.testing.assert_array_equal(found, dense)
    fewer = logits(replace(sparse, count=69), tmp_path, chunks, generated)
    np.testing.assert_array_equal(fewer[:69], dense[:69])
    assert (fewer[69] != dense[69]).any()


@pytest.mark.usefixtures("isa")
def test_equal_scores_choose_the_earlier_positions(tmp_path: Path) -> None:
    case = IndexedCase(whole=True, positions=True, count=5, index_heads=1, index_size=9)
    found = logits(case, tmp_path, (), 0)
    assert (np.diff(found[4:]) > 0).all(), "not in ascending order"
    assert found[:5].tolist() == [
        [position if position <= token else -1 for position in range(5)] for token in range(5)
    ]
    # A token whose scores are all 0 takes the first ones.
    assert (found[5:] == np.arange(5)).all(axis=1).any()
    assert not (found[5:] == np.arange(5)).all()


@pytest.mark.usefixtures("isa")
def test_threads_and_company_change_no_choice(tmp_path: Path) -> None:
    case = IndexedCase(tokens=600, count=40, positions=True, kv_type=KvType.F16)
    with case.opened(tmp_path) as (graph, model):
        alone = runner_of(case, graph, model).run(case.ids, generated=6)
        for threads in (2, 3):
            runner = runner_of(replace(case, threads=threads), graph, model)
            np.testing.assert_array_equal(runner.run(case.ids, (100, 7), 6), alone)
        names = "abcde"  # more than threads, and not of the same length
        many = Runner(
            graph,
            model,
            kv_type=case.kv_type,
            threads=3,
            positions=640,
            max_tokens=600,
            sequences=5,
        )
        for place, name in enumerate(names):
            many.step({name: case.ids[: 590 + place]})
        for at in range(4):
            step = many.step(
                {name: [case.ids[590 + place + at]] for place, name in enumerate(names)},
                GENERATION,
            )
            for place, name in enumerate(names):
                np.testing.assert_array_equal(step[name][0], alone[590 + place + at])
