"""Sums of squared inputs on the GPU, against those of the CPU."""

from pathlib import Path

import numpy as np
import pytest

from ingot.backends.gpu import planner
from ingot.engine.model.input_sums import sum_inputs
from ingot.errors import ModelError
from ingot.gguf import GgufLoader
from models.tiny_models import Fixture

HALVES = 1e-2  # inputs are rounded to 11 bits


# Norms before linear layers, chosen experts, and one that all tokens use; states.
@pytest.mark.parametrize(("name", "layers"), [("qwen2moe", None), ("mamba2", 1)])
def test_sums_are_those_of_the_cpu(name: str, layers: int | None, tmp_path: Path) -> None:
    fixture = Fixture.load(name)
    fixture = fixture.first_layers(layers) if layers else fixture
    ids = np.array(fixture.token_ids, np.int32)
    chunks = [ids[:5], ids[7:9]]
    calls: list[tuple[int, int]] = []
    with GgufLoader(fixture.write(tmp_path / "model.gguf")) as loader:
        expected = sum_inputs(loader, chunks, threads=1)
        found = sum_inputs(
            loader, chunks, threads=1, device="cuda", progress=lambda *call: calls.append(call)
        )
    assert found.keys() == expected.keys()
    for tensor, sums in expected.items():
        np.testing.assert_array_equal(found[tensor].counts, sums.counts, err_msg=tensor)
        bound = HALVES * sums.sums.max(axis=1, keepdims=True)
        assert (np.abs(found[tensor].sums - sums.sums) <= bound).all(), tensor
    assert calls == [(0, 2), (1, 2), (2, 2)]


def test_what_no_gpu_runs_is_summed_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "missing", lambda _: "such operation")
    fixture = Fixture.load("mamba2")
    chunks = [np.array(fixture.token_ids[:5], np.int32)]
    with GgufLoader(fixture.write(tmp_path / "model.gguf")) as loader:
        with pytest.raises(ModelError, match="the GPU backend has no such operation"):
            sum_inputs(loader, chunks, threads=1, device="cuda")
        assert sum_inputs(loader, chunks, threads=1, device="auto").keys()
