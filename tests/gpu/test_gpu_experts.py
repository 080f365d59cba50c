"""Experts on the GPU, against the reference: cases of the CPU's tests."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_graphs import SmallGraph, expected_logits
from test_expert_ops import Case

from gpu.gpu_runner import GpuRunner
from ingot.backends.gpu import find_device
from ingot.gguf import GgmlType
from ingot.graph import ops as o
from run_batches import GENERATION

INTERPRETED = find_device().interpreted
HALVES = 4e-3  # weights and inputs are rounded to 11 bits, twice
BASE = Case(experts=5, used=2, width=40, inner=33, tokens=3 if INTERPRETED else 70)


def check(small: SmallGraph, logits: o.Value, tokens: int, folder: Path) -> None:
    """A prompt, a single token, and several in one step of a generation."""
    graph, model = small.build(logits, folder / "experts.gguf")
    ids = list(range(tokens))
    with model:
        expected = expected_logits(graph, model, ids)
        runner = GpuRunner(
            graph, model, positions=max(32, tokens), max_tokens=max(32, tokens), sequences=tokens
        )
        together = runner.step({token: [token] for token in ids}, GENERATION)
        alone = {token: runner.run([token], generated=1) for token in ids[:1]}
        for found in (
            runner.run(ids),
            np.concatenate([together[token] for token in ids]),
            np.concatenate([alone[token] for token in alone]),
        ):
            assert np.isfinite(found).all()
            size = np.sqrt((expected**2).mean())
            assert np.abs(found - expected[: len(found)]).max() / size < 2 * HALVES


@pytest.mark.parametrize(
    "case",
    [
        replace(BASE, normalize=True, residual=True, scale=2.5),
        replace(BASE, gating=o.Gating.SIGMOID, selection_bias=True, used=3),
        replace(BASE, gating=o.Gating.CHOSEN_SOFTMAX, type=GgmlType.MXFP4, width=64, inner=32),
        replace(BASE, gating=o.Gating.SPARSE_MIXER, near=0.9, experts=7),
        replace(BASE, gated=False, activation=o.Activation.GELU, residual=True),
        replace(
            BASE,
            activation=o.Activation.CLAMPED_SWIGLU,
            bias=True,
            down_type=GgmlType.Q4_0,
            inner=32,
        ),
    ],
    ids=repr,
)
def test_routing(case: Case, tmp_path: Path) -> None:
    check(*case.build(), case.tokens, tmp_path)


@pytest.mark.parametrize("residual", [False, True])
def test_gated_rows(residual: bool, tmp_path: Path) -> None:
    small = SmallGraph()
    x = small.embed(small.random(3, 46, scale=4))
    gate, source, out = small.pick(x, 0, 1), small.pick(x, 1, 46), small.value(45)
    small.ops.append(o.GateRows(source=source, gate=gate, out=out))
    check(small, small.select(small.add(source, out) if residual else out), 3, tmp_path)
