"""The table of operations on the GPU, or in Triton's interpreter, against the reference."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gpu.gpu_runner import GpuRunner
from ingot.backends.gpu import GpuPlan, find_device
from ingot.backends.gpu.attention import generation_span, prompt_tile
from ingot.backends.gpu.kernels.attend_prompt import PromptTile
from ingot.backends.gpu.kernels.latents import LatentForm
from ingot.backends.gpu.latents import latent_tile
from ingot.errors import ModelError
from ingot.graph.kv_layout import KvLayout
from ingot.graph.kv_type import KvType
from ops.attention import BASE, LatentCase
from ops.case import Case, Gpu
from ops.small_graph import expected_logits
from ops.table import TABLE
from run_batches import GENERATION

RUN = {Gpu.INTERPRETER} if find_device().interpreted else {Gpu.INTERPRETER, Gpu.DEVICE}


def check(case: Case, folder: Path) -> None:
    with case.opened(folder) as (graph, model):
        ids = case.ids
        expected = expected_logits(graph, model, ids, case.kv_type)
        runner = GpuRunner(
            graph,
            model,
            kv_type=case.kv_type,
            positions=case.context,
            max_tokens=max(case.tokens, 32),
            sequences=case.tokens if case.together else 1,
        )
        for way in case.gpu_ways:
            assert_near(runner.run(ids, *way), expected, case)
        if case.together:
            step = runner.step({token: [token] for token in ids}, GENERATION)
            assert_near(np.concatenate([step[token] for token in ids]), expected, case)
            assert_near(runner.run(ids[:1], (), 1), expected[:1], case)


def assert_near(found: NDArray[np.float32], expected: NDArray[np.float64], case: Case) -> None:
    assert np.isfinite(found).all()
    error = (found - expected) / np.sqrt((expected**2).mean())
    assert np.abs(error).max() < case.gpu_bound
    assert np.sqrt((error**2).mean()) < case.gpu_bound / 4


@pytest.mark.parametrize("case", [case for case in TABLE if case.gpu in RUN], ids=str)
def test_operation(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@pytest.mark.parametrize("case", [case for case in TABLE if case.gpu is Gpu.REFUSED], ids=str)
def test_refused(case: Case, tmp_path: Path) -> None:
    """Before anything is sent to the device."""
    with case.opened(tmp_path) as (graph, model):
        layout = KvLayout.of(graph.kv_layers, case.kv_type, graph.states)
        with pytest.raises(ModelError, match="open the model with device='cpu'"):
            GpuPlan.of(graph, model, layout, find_device(), context=case.context, tokens=32)


def test_little_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller tiles of queries and positions, and what they compute is the same."""
    small = replace(find_device(), shared_memory=6000)
    assert prompt_tile(32, KvType.F16, small) == PromptTile(32, 16)
    assert generation_span(16, 32, KvType.F16, small) == 16
    monkeypatch.setattr("gpu.gpu_runner.find_device", lambda: small)
    check(replace(BASE, chunks=(37,), window=21), tmp_path)


def test_more_heads_than_a_program_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention over latents: several programs for the heads of one token."""
    small = replace(find_device(), shared_memory=4000)
    assert latent_tile(LatentForm(8, 16, 0, q8=False), 32, KvType.F16, small).rows == 16
    monkeypatch.setattr("gpu.gpu_runner.find_device", lambda: small)
    case = LatentCase(heads=18, size=16, tokens=5, chunks=(3,), generated=1, kv_type=KvType.F16)
    check(case, tmp_path)
