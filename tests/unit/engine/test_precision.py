"""precision: "fast" rounds the inputs of prompts to 8 bits where that is faster, "exact" to 16."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ingot import LLM, ConfigError, _native
from ingot.config import config
from ingot.engine import LoadedModel


@pytest.fixture
def fresh_settings() -> Iterator[None]:
    config.cache_clear()
    yield
    config.cache_clear()


def logits(path: Path, precision: str) -> NDArray[np.float32]:
    with LLM(path, context=64, threads=1, precision=precision) as llm:
        return llm.logits(llm.tokenizer.encode("Precision is a matter of inputs."))


@pytest.mark.parametrize("model", ["gemma_path", "smollm2_path"])
def test_fast_prompts_round_inputs(model: str, request: pytest.FixtureRequest) -> None:
    """Gemma's file has Q4_K and Q6_K tensors beside others, SmolLM2's has blocks of 32 weights."""
    if _native.active_isa() == "amx":
        pytest.skip("prompts on amx multiply no bytes")
    if _native.active_isa() in ("avx2", "avx512") and model == "smollm2_path":
        pytest.skip("products of SmolLM2's types and a byte do not fit the 16 bits of this CPU")
    path = request.getfixturevalue(model)
    exact, fast = logits(path, "exact"), logits(path, "fast")
    difference = np.linalg.norm(fast - exact) / np.linalg.norm(exact)
    assert 1e-4 < difference < 5e-2


@pytest.mark.usefixtures("fresh_settings")
def test_the_environment_is_the_default(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INGOT_PRECISION", "exact")
    with LoadedModel(smollm2_path, context=32, threads=1) as model:
        assert model.precision == "exact"
    with LoadedModel(smollm2_path, context=32, threads=1, precision="fast") as model:
        assert model.precision == "fast"


@pytest.mark.usefixtures("fresh_settings")
def test_what_it_is_not(smollm2_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"precision is 'double'.*exact, fast"):
        LLM(smollm2_path, precision="double")
    config.cache_clear()
    monkeypatch.setenv("INGOT_PRECISION", "half")
    with pytest.raises(
        ConfigError, match="INGOT_PRECISION is 'half'; it must be 'fast' or 'exact'"
    ):
        config()
