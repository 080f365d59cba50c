"""Which layers are asked to run on a GPU, as far as it can be said without one."""

from pathlib import Path

import pytest

from ingot.api import LLM
from ingot.backends import backend
from ingot.engine import LoadedModel
from ingot.errors import ConfigError
from models.tiny_models import Fixture


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Fixture.load("llama").write(tmp_path_factory.mktemp("model") / "m.gguf")


@pytest.mark.parametrize("layers", [-1, 4, True, 1.5, "many"])
@pytest.mark.parametrize("device", ["cpu", "cuda", "auto"])
def test_no_number_of_layers(path: Path, layers: object, device: str) -> None:
    with pytest.raises(ConfigError, match=r"gpu_layers is .* a number from 0 to 3"):
        LLM(path, context=32, gpu_layers=layers, device=device)


@pytest.mark.parametrize("layers", [1, 3, "auto"])
def test_layers_on_a_gpu_without_a_gpu(path: Path, layers: int | str) -> None:
    with pytest.raises(ConfigError, match=f"gpu_layers is {layers!r}, and the device 'cpu'"):
        LLM(path, context=32, gpu_layers=layers)


def test_no_layers_are_the_cpu(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks for a GPU."""
    monkeypatch.setattr(backend, "find_spec", lambda _: None)
    for device in ("cpu", "cuda", "auto"):
        with LoadedModel(path, context=32, device=device, gpu_layers=0) as model:
            assert model.gpu is None
            assert model.placement is None
    with LoadedModel(path, context=32, device="auto", gpu_layers=2) as model:
        assert model.gpu is None
        assert model.why_cpu is not None
        assert "needs PyTorch and Triton" in model.why_cpu
    with pytest.raises(ConfigError, match=r"device 'cuda' needs PyTorch.*ingot-llm\[gpu\]"):
        LoadedModel(path, context=32, device="cuda", gpu_layers=2)
