"""Which GPU a device's name means; what is not there is an error that says what is."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from ingot.api import LLM
from ingot.backends.backend import choose_device, count_gpus
from ingot.backends.gpu import device, find_device
from ingot.errors import ConfigError
from models.tiny_models import Fixture

pytestmark = pytest.mark.skipif(
    not find_device().interpreted, reason="what is here decides on a device"
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Fixture.load("llama").first_layers(1).write(tmp_path_factory.mktemp("m") / "m.gguf")


@pytest.fixture
def two_cards(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """As if PyTorch saw two GPUs; the thread has chosen the one in the list."""
    chosen = [0]
    monkeypatch.setattr(device.knobs.runtime, "interpret", False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: chosen[0])

    def properties(found: torch.device) -> SimpleNamespace:
        return SimpleNamespace(name=f"card {found.index}", multi_processor_count=8, major=9)

    def shared(index: int) -> dict[str, int]:
        return {"max_shared_mem": 1000 + index}

    utils = SimpleNamespace(get_device_properties=shared)
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    monkeypatch.setattr(device, "driver", SimpleNamespace(active=SimpleNamespace(utils=utils)))
    return chosen


def test_one_of_several(two_cards: list[int]) -> None:
    assert count_gpus() == 2
    for chosen in (0, 1):
        two_cards[0] = chosen
        for name, index in (("cuda", chosen), ("auto", chosen), ("cuda:0", 0), ("cuda:1", 1)):
            found = choose_device(name)
            assert found is not None
            assert found.torch == torch.device("cuda", index)
            assert found.name == f"card {index} (cuda:{index})"
            assert found.shared_memory == 1000 + index
    with pytest.raises(
        ConfigError, match=r"no device 'cuda:2': there are cuda:0 to cuda:1\. CUDA_"
    ):
        choose_device("cuda:2")


@pytest.mark.parametrize("engine_process", [False, True])
def test_a_device_that_is_not_there(path: Path, *, engine_process: bool) -> None:
    with pytest.raises(ConfigError, match="there is no device 'cuda:1': only cuda:0 is there"):
        LLM(path, context=32, device="cuda:1", engine_process=engine_process)


def test_the_first_by_its_number(path: Path) -> None:
    with LLM(path, context=32, device="cuda:0", max_running=1) as llm:
        assert llm.engine.model.on_gpu
        assert len(llm.generate([1, 2], max_tokens=2, temperature=0).token_ids) == 2
