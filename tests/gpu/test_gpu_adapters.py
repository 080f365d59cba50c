"""Adapters on the GPU backend: the reference's logits, and the same bits alone and among others."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event, current_thread

import numpy as np
import pytest
from gpu_runner import GpuRunner

from ingot import LLM
from ingot.adapters import Adapter, FloatMatrix, LowRank
from ingot.backends.gpu.adapters import AdapterMemory
from ingot.backends.gpu.graphs import Graphs
from ingot.backends.gpu.replay import DecodeReplay
from ingot.backends.gpu.variants import Start
from ingot.errors import AdapterError
from run_batches import GENERATION, PROMPT
from tiny_adapters import EVERYTHING, LINEAR, TinyModel, assert_close, write_random_adapter
from tiny_llama import LAYERS, write_tiny_llama

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


def test_steps_do_not_wait_for_an_adapter_of_a_larger_rank(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slots are freed and filled while kernels for another one are compiled."""
    runner = models.runner(models.adapter(rank=3, seed=1))
    adapted, making, may_end = runner.backend._adapted, Event(), Event()
    make = adapted._make

    def slow(graphs: Graphs, *, adapters: AdapterMemory) -> DecodeReplay:
        making.set()
        assert may_end.wait(60)
        return make(graphs, adapters=adapters)

    monkeypatch.setattr(adapted, "_make", slow)
    small = models.adapter(rank=3, seed=2)
    with ThreadPoolExecutor(1) as pool:
        large = pool.submit(runner.backend.prepare_adapters, 64)
        assert making.wait(60)
        runner.backend.attach(0, None)
        runner.backend.attach(1, small)
        assert_same(runner.run(IDS, generated=1, adapter=(1, 1.0)), models.wanted(small))
        assert not large.done()
        may_end.set()
        large.result()
    assert_same(runner.run(IDS, generated=1, adapter=(1, 1.0)), models.wanted(small))


def test_a_slot_that_was_freed_adds_nothing_and_takes_another_adapter(models: Models) -> None:
    one = models.adapter(rank=2, seed=21)
    other = models.adapter(rank=20, seed=22, names=EVERYTHING[:4])
    runner = models.runner(one)
    runner.backend.attach(0, None)
    assert_same(runner.run(IDS, adapter=(0, 1.0)), models.wanted(None))
    runner.backend.attach(0, other)  # a larger rank: decode steps are captured again
    assert_same(runner.run(IDS, generated=1, adapter=(0, 0.2)), models.wanted(other, 0.2))


def test_a_larger_rank_is_made_ready_while_steps_run(models: Models) -> None:
    """Until it is attached, steps use what there was; nothing is captured in their way."""
    small, large = models.adapter(rank=2, seed=31), models.adapter(rank=20, seed=32)
    runner = models.runner(small)
    backend, expected = runner.backend, models.wanted(small)
    before = backend.prepared
    assert before.captures_after_ready == 0
    backend.prepare_adapters(large.rank)
    ready = backend.prepared
    assert ready.captures > before.captures
    assert_same(runner.run(IDS, generated=2, adapter=(0, 1.0)), expected)
    backend.prepare_adapters(3)
    backend.attach(1, large)
    assert_same(runner.run(IDS, generated=2, adapter=(1, 0.2)), models.wanted(large, 0.2))
    assert_same(runner.run(IDS, generated=2, adapter=(0, 1.0)), expected)
    assert backend.prepared == ready
    assert ready.captures_after_ready == 0


def test_adapters_are_made_ready_in_the_thread_that_adds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step thread goes on meanwhile."""
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    files = [
        write_random_adapter(tmp_path / f"{rank}.gguf", seed=rank, rank=rank) for rank in (2, 20)
    ]
    threads: list[str] = []
    capture = DecodeReplay.capture

    def noted(self: DecodeReplay, start: Start) -> Iterator[None]:
        threads.append(current_thread().name)
        return capture(self, start)

    with LLM(path, context=64, device="cuda", max_running=2, adapters={"a": files[0]}) as llm:
        monkeypatch.setattr(DecodeReplay, "capture", noted)
        before = llm.stats
        request = llm.stream([1, 2, 3], max_tokens=4, temperature=0, adapter="a")
        next(request)
        llm.add_adapter("b", files[1])
        text = llm.generate([1, 2], max_tokens=2, temperature=0, adapter="b")
        assert len(text.token_ids) == 2
        assert len(request.result().token_ids) == 4
        after = llm.stats
    assert threads == [current_thread().name]
    assert after.captures > before.captures > 0
    assert before.captures_after_ready == after.captures_after_ready == 0


def test_an_adapter_of_experts_is_refused(models: Models) -> None:
    matrix = FloatMatrix.of(np.zeros((4, 64), np.float32))
    adapter = Adapter("it.gguf", {"blk.0.ffn_up_exps.weight": LowRank(matrix, matrix, 1.0, 2)})
    runner = models.runner()
    with pytest.raises(AdapterError, match="adapters of experts run on the CPU only"):
        runner.backend.attach(0, adapter)
    assert_same(runner.run(IDS), models.wanted(None))
