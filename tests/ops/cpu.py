"""Run a case on the CPU, on some or all instruction sets."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ingot import _native
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph
from ops.case import Case
from ops.small_graph import assert_near, expected_logits
from run_batches import GENERATION, Runner, using_isa

ISAS = _native.instruction_sets()


def runner_of(case: Case, graph: ComputationGraph, model: GgufLoader) -> Runner:
    """A backend with room for the case."""
    return Runner(
        graph,
        model,
        kv_type=case.kv_type,
        threads=case.threads,
        positions=case.context,
        max_tokens=max(case.tokens, 8),
        sequences=case.tokens if case.together else 1,
        expanded=case.expanded,
    )


def check(case: Case, folder: Path, isas: Sequence[str] = ISAS) -> None:
    """In every way to run it, it is near the reference in float64."""
    with case.opened(folder) as (graph, model):
        expected = expected_logits(graph, model, case.ids, case.kv_type)
        for isa in isas:
            with using_isa(isa):
                runner = runner_of(case, graph, model)
                found = [runner.run(case.ids, *way) for way in case.ways]
                for rows, way in zip(found, case.ways, strict=True):
                    assert_near(rows, expected, case.bound(isa, way))
                    if case.same_bits:
                        np.testing.assert_array_equal(rows, found[0])
                if case.together:
                    ids = case.ids[: _native.MAX_GENERATION_TOKENS]
                    step = runner.step({token: [token] for token in ids}, GENERATION)
                    rows = np.concatenate([step[token] for token in ids])
                    assert_near(rows, expected[: len(ids)], case.bound(isa, ((), len(ids))))
                    for token in ids:
                        runner.end(token)
                for group, size in enumerate(runner.pool.sizes):
                    assert runner.pool.free(group) == size
