"""Adapters on the GPU backend: the reference's logits, and the same bits alone and among others."""

from functools import partial

import numpy as np
import pytest
from gpu_runner import GpuRunner

from ingot.adapters import Adapter, FloatMatrix, LowRank
from ingot.errors import AdapterError
from run_batches import GENERATION, PROMPT
from tiny_adapters import EVERYTHING, LINEAR, TinyModel, assert_close
from tiny_llama import LAYERS

IDS = [256, 72, 101, 108, 108, 111, 32, 116]


class Models(TinyModel):
    """With programs that run it."""

    def runner(self, *adapters: Adapter) -> GpuRunner:
        runner = GpuRunner(self.graph, self.file, max_tokens=64, positions=64, sequences=4)
        for slot, adapter in enumerate(adapters):
            runner.backend.attach(slot, adapter)
        return runner

    def wanted(self, adapter: Adapter | None, scale: float = 1.0) -> np.ndarray:
        return self.reference(IDS, adapter, scale)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp("adapters"))


assert_same = partial(assert_close, part=1e-2)


def test_prompts_and_decoding_give_the_reference_logits(models: Models) -> None:
    adapter = models.adapter(rank=5, seed=1)
    runner = models.runner(adapter)
    wanted = models.wanted(adapter, 0.75)
    assert_same(runner.run(IDS, generated=2, adapter=(0, 0.75)), wanted)
    assert_same(runner.run(IDS), models.wanted(None))
    assert np.abs(wanted - models.wanted(None)).max() > 0.1 * np.abs(wanted).max()


@pytest.mark.parametrize("name", [*LINEAR, "token_embd", "output"])
def test_each_matrix_alone(models: Models, name: str) -> None:
    layer = f"blk.{LAYERS - 1}." if name in LINEAR else ""
    adapter = models.adapter(names=[f"{layer}{name}.weight"], rank=3, seed=2)
    wanted = models.wanted(adapter)
    assert_same(models.runner(adapter).run(IDS, generated=1, adapter=(0, 1.0)), wanted)


def test_the_same_bits_alone_and_among_others(models: Models) -> None:
    adapters = [models.adapter(rank=rank, seed=rank) for rank in (3, 20)]
    alone = {
        number: models.runner(adapter).run(IDS, generated=2, adapter=(0, 0.5))
        for number, adapter in enumerate(adapters)
    }
    runner = models.runner(*reversed(adapters))
    uses = {0: (1, 0.5), "plain": None, 1: (0, 0.5)}
    rows: dict[object, list[np.ndarray]] = {name: [] for name in uses}
    for start, end, phase in [(0, 6, PROMPT), (6, 7, GENERATION), (7, 8, GENERATION)]:
        found = runner.step(dict.fromkeys(uses, IDS[start:end]), phase, adapters=uses)
        for name, logits in found.items():
            rows[name].append(logits)
    for number, wanted in alone.items():
        np.testing.assert_array_equal(np.concatenate(rows[number]), wanted)
    np.testing.assert_array_equal(np.concatenate(rows["plain"]), runner.run(IDS, generated=2))


def test_a_slot_that_was_freed_adds_nothing_and_takes_another_adapter(models: Models) -> None:
    one = models.adapter(rank=2, seed=21)
    other = models.adapter(rank=20, seed=22, names=EVERYTHING[:4])
    runner = models.runner(one)
    runner.backend.attach(0, None)
    assert_same(runner.run(IDS, adapter=(0, 1.0)), models.wanted(None))
    runner.backend.attach(0, other)  # a larger rank: decode steps are captured again
    assert_same(runner.run(IDS, generated=1, adapter=(0, 0.2)), models.wanted(other, 0.2))


def test_an_adapter_of_experts_is_refused(models: Models) -> None:
    matrix = FloatMatrix.of(np.zeros((4, 64), np.float32))
    adapter = Adapter("it.gguf", {"blk.0.ffn_up_exps.weight": LowRank(matrix, matrix, 1.0, 2)})
    runner = models.runner()
    with pytest.raises(AdapterError, match="adapters of experts run on the CPU only"):
        runner.backend.attach(0, adapter)
    assert_same(runner.run(IDS), models.wanted(None))
