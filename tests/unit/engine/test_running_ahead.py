"""Steps that run ahead: the same texts as without, whoever comes, goes or ends meanwhile.

The loop's thread is not started: the tests are the thread, so that every order of events can be had
again.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpu_device_sampler import CpuSampler
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot import LLM, SamplingParams
from ingot.backends.batch import ExecutionPhase
from ingot.engine.text_task import Asked, TextTask
from ingot.errors import RequestCancelledError

KINDS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 1.5},
    {"temperature": 2.5, "top_k": 250, "top_p": 1.0, "min_p": 0.0},
    {"temperature": 1.5, "repeat_penalty": 1.2},  # not ahead
    {"temperature": 1.5, "top_k": 0},  # not on the device
    {"temperature": 1.5, "stop": ["a", "e"]},
    {"temperature": 1.5, "stop_token_ids": list(range(0, 256, 9))},
]


class Engine:
    """The loop of a model, turned by hand."""

    def __init__(self, path: Path, *, ahead: bool, **options: Any) -> None:
        self.llm = LLM(path, threads=1, reuse="prompt", **options)
        self.loop = self.llm.engine._loop
        self.device_sampler = CpuSampler.of(self.llm) if ahead else None
        self.tasks: list[TextTask] = []

    def submit(self, number: int, kind: int, length: int, most: int) -> None:
        """A prompt whose tokens follow from two numbers."""
        ids = (np.arange(length) * (number + 1) * 7 + kind) % 250
        params = SamplingParams(seed=number, max_tokens=most, **KINDS[kind])
        task = self.llm.engine.text_of(Asked(ids.astype(np.int32), params))
        self.tasks.append(task)
        self.loop.scheduler.add(task)

    def step(self) -> None:
        self.loop._end_unwanted()
        if self.loop.scheduler.running or self.loop.scheduler.waiting:
            self.loop._run_step(self.loop.stepper.step)
        self.loop._remove_ended()

    def finish(self) -> None:
        while not all(task.channel.is_ended for task in self.tasks):
            self.step()

    def texts(self) -> list[tuple[int, ...]]:
        return [task.transcript.token_ids for task in self.tasks]

    def close(self) -> None:
        self.llm.close()


@pytest.fixture(scope="module")
def alone(tiny: Path) -> Iterator[dict[tuple[int, int, int, int], tuple[int, ...]]]:
    """What each text is, written by itself on the host."""

    class Texts(dict[tuple[int, int, int, int], tuple[int, ...]]):
        def __missing__(self, key: tuple[int, int, int, int]) -> tuple[int, ...]:
            engine.submit(*key)
            engine.finish()
            self[key] = engine.texts()[-1]
            return self[key]

    engine = Engine(tiny, ahead=False)
    yield Texts()
    engine.close()


texts = st.tuples(
    st.integers(0, 3),
    st.sampled_from([0, 1, 1, 2, 3, 4, 5, 6]),
    st.integers(1, 70),
    st.integers(0, 40),
)
events = st.one_of(
    texts,
    st.integers(1, 12),  # steps
    st.tuples(st.just("cancel"), st.integers(0, 9)),
    st.just("call"),
)


@settings(max_examples=60, deadline=None)
@given(
    happening=st.lists(events, min_size=1, max_size=16),
    options=st.sampled_from([{}, {"cache_tokens": 192, "context": 128}, {"max_running": 2}]),
)
def test_nobody_notices(
    tiny: Path,
    alone: dict[tuple[int, int, int, int], tuple[int, ...]],
    happening: list[Any],
    options: dict[str, int],
) -> None:
    """With a cache that is too small, and with texts that wait for others to end, too."""
    engine = Engine(tiny, ahead=True, **options)
    asked: list[tuple[int, int, int, int]] = []
    for event in happening:
        match event:
            case int():
                for _ in range(event):
                    engine.step()
            case "call":
                engine.loop._run_step(engine.loop.stepper.land)
                for task in engine.loop.scheduler.running:  # as if nothing ran ahead
                    sequence = task.sequences[0]
                    assert not sequence.cached or sequence.computed == sequence.blocks.length
            case ("cancel", number):
                if number < len(engine.tasks):
                    engine.tasks[number].channel.wish.cancelled = True
            case _:
                asked.append(event)
                engine.submit(*event)
    engine.finish()
    assert engine.device_sampler
    assert engine.device_sampler.running == 0, "every step was waited for"
    assert engine.llm.stats.blocks_held == 0
    for task, key, found in zip(engine.tasks, asked, engine.texts(), strict=True):
        if isinstance(task.channel.error, RequestCancelledError):
            assert alone[key][: len(found)] == found
        else:
            assert task.channel.error is None
            assert alone[key] == found
    engine.close()


def test_steps_run_ahead(tiny: Path) -> None:
    """Those after prompts, too; none for nothing, where the end is known."""
    for options in ({}, {"context": 30}):
        engine = Engine(tiny, ahead=True, **options)
        for number in range(3):
            engine.submit(number, 2, 10, 30 if options else 20)
        engine.finish()
        assert set(map(len, engine.texts())) == {20}
        assert engine.device_sampler
        assert (engine.device_sampler.steps, engine.device_sampler.ahead) == (19, 19)
        assert engine.loop.counters.generated_tokens == 3 * 20
        engine.close()


def test_texts_that_end_apart(
    tiny: Path, alone: dict[tuple[int, int, int, int], tuple[int, ...]]
) -> None:
    """Those that go on take their tokens from their own rows of the step before."""
    engine = Engine(tiny, ahead=True)
    asked = [(number, kind, 9, 40) for number in range(4) for kind in (6, 1, 5)]
    for each in asked:
        engine.submit(*each)
    engine.finish()
    assert engine.texts() == [alone[each] for each in asked]
    assert len({len(text) for text in engine.texts()}) > 3
    engine.close()


@pytest.mark.parametrize("kind", [3, 4])
def test_what_hangs_on_the_text_does_not(tiny: Path, kind: int) -> None:
    engine = Engine(tiny, ahead=True)
    engine.submit(0, kind, 10, 20)
    engine.finish()
    assert engine.device_sampler
    assert engine.device_sampler.ahead == 0
    engine.close()


def test_the_cache_is_told_what_was_written(tiny: Path) -> None:
    """Not of tokens behind an end, whichever place of a block it is at."""
    for length in range(20, 60):
        known = []
        for ahead in (False, True):
            engine = Engine(tiny, ahead=ahead)
            engine.llm.engine.model.cache.reuse = type(engine.llm.engine.model.cache.reuse)("all")
            engine.submit(1, 6, length, 40)
            engine.finish()
            cache = engine.llm.engine.model.cache
            known.append((engine.texts()[0], cache.filed_runs, engine.llm.stats.blocks_kept))
            engine.close()
        assert known[0] == known[1]


def test_an_error_of_a_step_ahead(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends those that ran, and leaves a model that goes on."""
    engine = Engine(tiny, ahead=True)
    sampler = engine.device_sampler
    assert sampler
    real = sampler.start

    def fail(*arguments: Any) -> Any:
        if sampler.steps == 5:
            raise MemoryError("none left")
        return real(*arguments)

    monkeypatch.setattr(sampler, "start", fail)
    engine.submit(0, 1, 10, 20)
    engine.submit(1, 1, 10, 20)
    engine.finish()
    assert all(isinstance(task.channel.error, MemoryError) for task in engine.tasks)
    assert engine.llm.stats.blocks_held == 0
    sampler.steps = 6
    engine.submit(2, 1, 10, 20)
    engine.finish()
    assert len(engine.texts()[-1]) == 20
    engine.close()


def test_arrivals_and_forks(tiny: Path) -> None:
    """With the thread."""
    fields = {"temperature": 1.5, "max_tokens": 60}
    prompt = [256, 104, 105, 32, 116]
    with LLM(tiny, threads=1) as llm:
        expected = [llm.generate([*prompt, n], seed=n, **fields).token_ids for n in range(6)]
    with LLM(tiny, threads=1) as llm:
        sampler = CpuSampler.of(llm)
        requests = []
        for n in range(6):
            requests.append(llm.stream([*prompt, n], seed=n, **fields))
            next(requests[-1], None)
        fork = requests[-1].fork(seed=5)
        assert [request.result().token_ids for request in requests] == expected
        assert fork.result().token_ids == expected[-1]
        assert sampler.ahead > 0


@pytest.mark.parametrize("ahead", [False, True])
def test_a_text_that_nobody_wants_frees_its_place_within_a_step(tiny: Path, *, ahead: bool) -> None:
    engine = Engine(tiny, ahead=ahead)
    pool = engine.llm.engine.model.pool
    for number in range(4):
        engine.submit(number, kind=1, length=40, most=40)
    for _ in range(6):
        engine.step()
    before = pool.available(0)
    for task in engine.tasks[:3]:
        task.channel.wish.cancelled = True
    engine.step()
    assert engine.loop.scheduler.running == engine.tasks[3:]
    assert pool.available(0) == before + 3 * 2
    engine.finish()
    assert pool.available(0) == pool.sizes[0]
    engine.close()


def test_a_text_that_ends_does_not_keep_others_from_running_ahead(tiny: Path) -> None:
    engine = Engine(tiny, ahead=True)
    for number in range(4):
        engine.submit(number, kind=2, length=3, most=10 + number)
    engine.finish()
    assert engine.device_sampler is not None
    assert engine.device_sampler.ahead == engine.device_sampler.steps
    engine.close()


@pytest.mark.parametrize(
    ("kind", "chunk", "ahead"),
    [
        (2, 64, True),
        (3, 64, False),  # its second token depends on the first
        (4, 64, False),  # the host samples its tokens
        (2, 32, False),  # the prompt is not read to its end
    ],
)
def test_a_step_runs_ahead_of_the_tokens_after_prompts(
    tiny: Path,
    alone: dict[tuple[int, int, int, int], tuple[int, ...]],
    kind: int,
    chunk: int,
    *,
    ahead: bool,
) -> None:
    """Beside texts in decode, whose tokens are in other rows; two prompts end in a step."""
    engine = Engine(tiny, ahead=True, chunk_tokens=chunk)
    sampler = engine.device_sampler
    assert sampler is not None
    asked = [(0, 1, 3, 30), (1, 1, 7, 30), (2, 2, 17, 9), (3, kind, 33, 9)]
    for each in asked[:2]:
        engine.submit(*each)
    for _ in range(4):
        engine.step()
    for each in asked[2:]:
        engine.submit(*each)
    engine.step()  # the one that ran ahead
    assert (sampler.prompts, sampler.ahead) == (1, 4)
    engine.step()
    assert (sampler.prompts, sampler.ahead) == (2, 4 + ahead)
    engine.finish()
    assert engine.texts() == [alone[each] for each in asked]
    engine.close()


def test_texts_that_wait_for_room_in_the_cache_do_not_keep_others_from_running_ahead(
    tiny: Path,
) -> None:
    engine = Engine(tiny, ahead=True, cache_tokens=128, context=128)
    engine.submit(0, kind=2, length=40, most=30)
    engine.submit(1, kind=2, length=100, most=5)
    for _ in range(20):
        engine.step()
    assert engine.loop.scheduler.waiting
    assert len(engine.loop.scheduler.running) == 1
    assert engine.device_sampler is not None
    assert engine.device_sampler.ahead == engine.device_sampler.steps
    engine.finish()
    assert [len(text) for text in engine.texts()] == [30, 5]
    engine.close()


def test_tokens_of_texts_are_handled_while_the_device_reads_prompts(tiny: Path) -> None:
    engine = Engine(tiny, ahead=True)
    sampler = engine.device_sampler
    assert sampler is not None
    engine.submit(0, kind=3, length=3, most=20)
    for _ in range(4):
        engine.step()
    before = len(engine.tasks[0].transcript.sampled)
    seen = []
    sampler.waited = lambda phase: seen.append((phase, len(engine.tasks[0].transcript.sampled)))
    engine.submit(1, kind=2, length=40, most=5)
    engine.step()
    assert seen == [(ExecutionPhase.GENERATION, before), (ExecutionPhase.PROMPT, before + 1)]
    assert len(engine.tasks[1].transcript.sampled) == 1
    assert sampler.sampled == before + 2  # the first token after each prompt, too
    engine.close()
