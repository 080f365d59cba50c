"""Whole tiny models on the GPU, against what `transformers` computed."""

from pathlib import Path

import numpy as np
import pytest

from gpu.gpu_runner import GpuRunner
from ingot.api import LLM
from ingot.backends.reference import Reference
from ingot.gguf import GgmlType, GgufLoader
from ingot.models import build_graph
from models.recipes import RECIPES
from models.tiny_models import Fixture

HALVES = 1e-2  # weights, inputs and queries are rounded to 11 bits


@pytest.mark.parametrize("name", RECIPES)
def test_model(name: str, tmp_path: Path) -> None:
    """A prompt in two pieces, then single tokens."""
    fixture = Fixture.load(name)
    tokens = 24
    with GgufLoader(fixture.write(tmp_path / "model.gguf")) as model:
        runner = GpuRunner(
            build_graph(model), model, kv_type=GgmlType.F16, positions=64, max_tokens=64
        )
        found = runner.run(fixture.token_ids[:tokens], chunks=[9], generated=3)
        expected = fixture.logits[:tokens]
        assert np.abs(found - expected).max() <= HALVES * max(1.0, float(np.abs(expected).max()))


def test_llm(tmp_path: Path) -> None:
    """Through the front door."""
    fixture = Fixture.load("llama")
    path = fixture.write(tmp_path / "model.gguf", GgmlType.Q8_0)
    ids = fixture.token_ids[:8]
    with LLM(path, context=64, device="cuda") as gpu:
        expected, found = Reference(gpu.graph, gpu.model).forward(ids), gpu.logits(ids)
        assert np.abs(found - expected).max() <= HALVES * max(1.0, float(np.abs(expected).max()))
        assert len(gpu.generate(ids, max_tokens=3, temperature=0).token_ids) == 3
