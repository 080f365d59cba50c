"""The chunks of prompts beside texts in decode, chosen by what steps took on a device with a clock
of its own."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from cpu_device_sampler import CpuSampler, Waiting
from test_running_ahead import Engine

from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.device_sampler import SamplingPlan
from ingot.engine.chunk_sizes import ChunkSizes
from tiny_llama import write_tiny_llama

SIZES = (256, 512, 1024)
TEXTS = 64


def measured(decode: float, **chunks: float) -> ChunkSizes:
    """After a decode step and chunks (`c256=...`), in milliseconds."""
    sizes = ChunkSizes(SIZES)
    sizes.saw_decode(TEXTS, decode)
    for name, milliseconds in chunks.items():
        sizes.saw_chunk(int(name[1:]), milliseconds)
    return sizes


def test_nothing_is_known() -> None:
    sizes = ChunkSizes(SIZES)
    assert sizes.choose(TEXTS) == 256
    sizes.saw_chunk(1000, 3.0)
    assert sizes.choose(TEXTS) == 256, "no decode step has run"
    sizes = ChunkSizes(SIZES)
    sizes.saw_decode(TEXTS, 3.0)
    assert sizes.choose(TEXTS) == 256, "no chunk has run"


@pytest.mark.parametrize(
    ("decode", "chosen"),
    [(30.0, 1024), (15.0, 1024), (14.9, 512), (8.0, 512), (7.9, 256), (1, 256)],
)
def test_the_largest_that_takes_as_long_as_two_decode_steps(decode: float, chosen: int) -> None:
    assert measured(decode, c256=10, c512=16, c1024=30).choose(TEXTS) == chosen


def test_one_size_tells_of_the_others() -> None:
    """A larger chunk takes longer in proportion at most; a smaller one perhaps as long."""
    assert measured(10, c256=10).choose(TEXTS) == 512
    assert measured(9.9, c256=10).choose(TEXTS) == 256
    assert measured(20, c256=10).choose(TEXTS) == 1024
    assert measured(14, c1024=30).choose(TEXTS) == 256
    assert measured(15, c1024=30).choose(TEXTS) == 1024
    assert measured(10, c200=10).choose(TEXTS) == 512, "a device fills it up to 256"


def test_more_texts_allow_larger_chunks() -> None:
    sizes = measured(6, c256=10, c512=16, c1024=26)
    sizes.saw_decode(4 * TEXTS, 13)
    assert [sizes.choose(texts) for texts in (1, TEXTS, 2 * TEXTS, 4 * TEXTS)] == [
        256,
        256,
        512,
        1024,
    ]


def test_decode_that_was_not_measured_does_not_count_for_more() -> None:
    """Many texts decode about as fast as few; few may be much faster than many."""
    sizes = ChunkSizes(SIZES)
    sizes.saw_decode(1, 6)
    sizes.saw_chunk(256, 6)
    assert [sizes.choose(texts) for texts in (1, 2, 16)] == [512, 512, 512]
    sizes.saw_decode(16, 12)
    assert [sizes.choose(texts) for texts in (1, 16, 64)] == [512, 1024, 1024]
    assert measured(30, c256=10, c512=16, c1024=30).choose(TEXTS // 8) == 256


def test_times_change() -> None:
    """The last five count, and one that is out of line does not."""
    sizes = measured(6, c256=10, c512=12, c1024=30)
    assert sizes.choose(TEXTS) == 512
    for _ in range(4):
        sizes.saw_chunk(512, 12)
    sizes.saw_chunk(512, 500)
    assert sizes.choose(TEXTS) == 512
    for _ in range(2):
        sizes.saw_chunk(512, 20)
    assert sizes.choose(TEXTS) == 256


def test_the_next_size_is_tried_again_but_seldom() -> None:
    """Once, until one of more tokens than chosen has run; prompts may be too short for it."""
    sizes = measured(6, c256=10, c512=20, c1024=30)
    tried = []
    for chunk in range(1000):
        size = sizes.choose(TEXTS)
        if size > 256:
            tried.append((chunk, size))
        sizes.saw_chunk(size, 10 if chunk < 500 else {256: 5, 512: 11}.get(size, 30))
    assert [chunk for chunk, _ in tried[:2]] == [256, 513]
    assert {size for _, size in tried[:2]} == {512}
    for _ in range(300):
        sizes.saw_chunk(60, 5)
    assert sizes.choose(TEXTS) == sizes.choose(TEXTS) == 1024


def test_the_largest_has_none_to_try() -> None:
    sizes = measured(20, c256=1, c512=2, c1024=3)
    for _ in range(400):
        sizes.saw_chunk(1024, 3)
    assert sizes.choose(TEXTS) == 1024


class TimedSampler(CpuSampler):
    """A device that says what its steps take."""

    seconds: Callable[[ExecutionPhase, int], float]
    chunks: list[int]

    def start(self, batch: Batch, plans: Sequence[SamplingPlan | None]) -> Waiting:
        waiting = super().start(batch, plans)
        if batch.phase is ExecutionPhase.PROMPT:
            self.chunks.append(len(batch.ids))
        seconds = self.seconds(batch.phase, len(batch.ids))
        waiting.outcome = replace(waiting.outcome, seconds=seconds)
        return waiting


@pytest.mark.parametrize(("decode", "chunk"), [(4.0, 128), (8.0, 256), (17.0, 512)])
def test_the_engine_chooses_by_what_its_device_took(
    tmp_path: Path, decode: float, chunk: int
) -> None:
    """A token of a prompt takes 1/16 ms; texts are what they are with any chunks."""
    keys, texts = {"llama.context_length": 1024}, []
    tiny = write_tiny_llama(tmp_path / "tiny.gguf", keys=keys)
    for timed in (False, True):
        engine = Engine(tiny, ahead=False, context=1024, max_running=8)
        if timed:
            sampler = TimedSampler(engine.llm.engine.model._running)
            sampler.chunks = []
            sampler.seconds = lambda phase, tokens: (
                tokens / 16 if phase is ExecutionPhase.PROMPT else decode
            )
            engine.llm.engine.model.device_sampler = sampler
            engine.loop.scheduler.chunks = sizes = ChunkSizes((128, 256, 512))
            for size in (128, 256, 512):
                sizes.saw_chunk(size, size / 16)
        engine.submit(0, kind=2, length=20, most=40)
        for _ in range(3):
            engine.step()
        engine.submit(1, kind=2, length=900, most=5)
        engine.finish()
        texts.append(engine.texts())
        engine.close()
    assert texts[0] == texts[1]
    assert sampler.chunks[0] == 20, "nothing is in decode"
    assert set(sampler.chunks[1:-1]) == {chunk}
    assert sum(sampler.chunks) == 920
