"""Whole tiny models on the GPU, against what `transformers` computed."""

from pathlib import Path

import numpy as np
import pytest

from gpu.gpu_runner import GpuRunner
from ingot.api import LLM
from ingot.backends.gpu import find_device
from ingot.backends.reference import Reference
from ingot.errors import ModelError
from ingot.gguf import GgmlType, GgufLoader
from ingot.graph.kv_type import KvType
from ingot.models import build_graph
from models.recipes import RECIPES
from models.recipes_encoders import ENCODERS
from models.tiny_models import Fixture

HALVES = 1e-2  # weights, inputs and queries are rounded to 11 bits
INTERPRETED = find_device().interpreted
CONTEXT = 96
# The interpreter takes seconds for a token, and these have what is special: norms before and after,
# windows and caps; learned positions and layer norms; experts with a shared one; sinks and biases.
FEW = ["gemma2", "gpt2", "qwen2moe", "gpt-oss"]
DECODERS = [name for name in RECIPES if name not in ENCODERS]


@pytest.mark.parametrize("name", FEW if INTERPRETED else DECODERS)
def test_model(name: str, tmp_path: Path) -> None:
    """A prompt in two pieces, then single tokens."""
    fixture = Fixture.load(name)
    tokens, chunk = (4, 1) if INTERPRETED else (40, 17)
    with GgufLoader(fixture.write(tmp_path / "model.gguf")) as model:
        runner = GpuRunner(
            build_graph(model, CONTEXT),
            model,
            kv_type=KvType.F16,
            positions=CONTEXT,
            max_tokens=64,
        )
        found = runner.run(fixture.token_ids[:tokens], chunks=[chunk], generated=2)
        expected = fixture.logits[:tokens]
        assert np.abs(found - expected).max() <= HALVES * max(1.0, float(np.abs(expected).max()))


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_are_refused(name: str, tmp_path: Path) -> None:
    """They run on the CPU, where the device may be chosen."""
    path = Fixture.load(name).write(tmp_path / "model.gguf")
    with pytest.raises(ModelError, match="encoders do not run on a GPU"):
        LLM(path, context=32, device="cuda")
    with LLM(path, context=32, device="auto") as llm:
        assert not llm.engine.model.on_gpu


@pytest.mark.skipif(INTERPRETED, reason="the interpreter takes minutes")
def test_llm(tmp_path: Path) -> None:
    """Through the front door."""
    fixture = Fixture.load("llama")
    path = fixture.write(tmp_path / "model.gguf", GgmlType.Q8_0)
    ids = fixture.token_ids[:4]
    with LLM(path, context=64, device="cuda") as gpu:
        expected, found = Reference(gpu.graph, gpu.model).forward(ids), gpu.logits(ids)
        assert np.abs(found - expected).max() <= HALVES * max(1.0, float(np.abs(expected).max()))
        assert len(gpu.generate(ids, max_tokens=3, temperature=0).token_ids) == 3
