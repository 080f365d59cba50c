"""States on a GPU: bits do not depend on company or cuts, and a CPU reads the same states."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gpu.gpu_runner import GpuRunner
from ingot.api import LLM
from ingot.backends.gpu import find_device
from ingot.gguf import GgmlType
from ingot.graph.kv_layout import BLOCK_TOKENS
from models.tiny_models import Fixture
from ops.case import Case
from ops.recurrent import Conv, Delta, Scan
from ops.small_graph import assert_near, expected_logits
from run_batches import GENERATION, Runner

CASES = [
    Conv(channels=5, taps=4),
    Scan(heads=3, states=5),
    Scan(heads=2, size=5, states=5, one_decay=True),
    Delta(heads=2, key_size=5, value_size=7),
]


@dataclass
class Opened:
    """An operation on both devices, and what it should compute."""

    case: Case
    gpu: GpuRunner
    cpu: Runner
    expected: NDArray[np.float64]

    @property
    def group(self) -> int:
        """The group of states."""
        return len(self.gpu.backend.layout.groups) - 1

    def state(self, name: object, run: int) -> NDArray[np.uint8]:
        """What the GPU has in the block of a run."""
        block = int(self.gpu.sequences[name].tables[self.group][run])
        found: NDArray[np.uint8] = self.gpu.backend.read_block(self.group, block)
        return found


@pytest.fixture(params=CASES, ids=str)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    case = request.param
    with case.opened(tmp_path) as (graph, model):
        sizes = {"positions": 128, "max_tokens": 128, "sequences": 4}
        yield Opened(
            case,
            GpuRunner(graph, model, **sizes),
            Runner(graph, model, **sizes),
            expected_logits(graph, model, case.ids),
        )


def test_company_and_cuts(opened: Opened) -> None:
    """Two prompts in one step, one of them from the end of a run on; then guesses."""
    gpu, ids = opened.gpu, opened.case.ids
    whole = gpu.run(ids)
    gpu.step({"cut": ids[:BLOCK_TOKENS]})
    both = gpu.step({"cut": ids[BLOCK_TOKENS:], "short": ids[:3]})
    np.testing.assert_array_equal(both["cut"], whole[BLOCK_TOKENS:])
    np.testing.assert_array_equal(both["short"], whole[:3])
    one_by_one = gpu.run(ids[:6], generated=3)[3:]
    guessed = gpu.step({"short": ids[3:6], "cut": ids[:1]}, GENERATION)
    np.testing.assert_array_equal(guessed["short"], one_by_one)


def test_states_are_kept_at_the_ends_of_runs(opened: Opened) -> None:
    """A text that continues from there is what it is without a longer one before it."""
    gpu, ids = opened.gpu, opened.case.ids
    length = (len(ids) - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    run = length // BLOCK_TOKENS - 1
    gpu.step({"long": ids})
    kept = opened.state("long", run).copy()  # another text will take the block
    gpu.step({"short": ids[:length]})
    target = int(gpu.sequences["short"].tables[opened.group][run])
    gpu.backend.write_block(opened.group, target, kept)
    found = gpu.step({"short": ids[length : length + 1]}, GENERATION)["short"]
    expected = gpu.run(ids[: length + 1], generated=1)[-1:]
    np.testing.assert_array_equal(found, expected)


def test_a_cpu_continues(opened: Opened) -> None:
    """From the state that a GPU left, in the middle of a run."""
    gpu, cpu, ids = opened.gpu, opened.cpu, opened.case.ids
    gpu.step({"text": ids[:-1]})
    cpu.step({"text": ids[:-1]})
    run = (len(ids) - 2) // BLOCK_TOKENS
    block = int(cpu.sequences["text"].tables[opened.group][run])
    cpu.backend.write_block(opened.group, block, opened.state("text", run))
    found = cpu.step({"text": ids[-1:]}, GENERATION)["text"]
    assert_near(found, opened.expected[-1:], 1e-4)


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One layer with a short convolution, one with attention."""
    fixture = Fixture.load("lfm2").first_layers(2)
    return fixture.write(tmp_path_factory.mktemp("model") / "m.gguf", GgmlType.Q8_0)


def test_an_engine_reuses_saves_and_restores_states(hybrid: Path, tmp_path: Path) -> None:
    prompt = np.random.default_rng(1).integers(0, 61, 35).tolist()
    options = {"temperature": 0.0, "ignore_eos": True}
    with LLM(hybrid, context=64, device="cuda", max_running=2) as llm:
        assert llm.engine.model.on_gpu
        first = llm.generate(prompt, max_tokens=2, **options)
        again = llm.generate(prompt, max_tokens=2, **options)
        assert again.token_ids == first.token_ids
        assert again.timings.reused_tokens == BLOCK_TOKENS
        llm.save(prompt, tmp_path / "text.kv")
        llm.engine.clear_cache()
        assert len(llm.restore(tmp_path / "text.kv")) == BLOCK_TOKENS
        restored = llm.generate(prompt, max_tokens=2, **options)
        assert restored.token_ids == first.token_ids
        assert restored.timings.reused_tokens == BLOCK_TOKENS


@pytest.mark.skipif(find_device().interpreted, reason="the interpreter takes minutes")
@pytest.mark.parametrize("name", ["mamba2-groups", "nemotron_h", "qwen35"])
def test_many_texts_share_few_states(name: str, tmp_path: Path) -> None:
    """Texts take turns, and none of them changes."""
    path = Fixture.load(name).write(tmp_path / "m.gguf", GgmlType.Q8_0)
    prompts = [[number + 1, *range(1, 50)] for number in range(10)]
    options = {"temperature": 0.0, "ignore_eos": True, "max_tokens": 40}
    with LLM(path, context=128, device="cuda", reuse="none") as alone:
        expected = [alone.generate(prompt, **options).token_ids for prompt in prompts]
    with LLM(path, context=128, device="cuda", cache_tokens=128) as llm:
        requests = [llm.stream(prompt, **options) for prompt in prompts]
        assert [request.result().token_ids for request in requests] == expected
        assert llm.stats.blocks_held == 0
