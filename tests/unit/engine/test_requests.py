"""Requests: from threads and event loops, their states, their ends, and what they leave alone."""

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holding import PATIENCE
from ingot import LLM, SamplingParams
from ingot.engine import EngineOptions, InferenceEngine, RequestState
from ingot.errors import (
    ConfigError,
    ModelError,
    ProcessorError,
    QueueFullError,
    RequestCancelledError,
    SamplingError,
)

PROMPT = [256, 104, 105, 32, 116]
LONG = {"temperature": 0, "ignore_eos": True, "max_tokens": 200}


def slow(_: Any, __: Any) -> None:
    """A processor that leaves others something of the processor."""
    time.sleep(0.001)


ENDLESS = {**LONG, "max_tokens": None, "context_overflow": "shift", "processors": [slow]}
SHORT = {"temperature": 0, "ignore_eos": True, "max_tokens": 5}


def wait_until(true: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def held_blocks(llm: LLM) -> int:
    return llm.stats.blocks_held


def test_an_engine_and_a_model(tiny: Path) -> None:
    engine = InferenceEngine(EngineOptions(threads=1))
    with pytest.raises(ModelError, match="call load_gguf_model first"):
        engine.submit_request("hi")
    engine.load_gguf_model(tiny)
    with pytest.raises(ModelError, match="the engine has a model"):
        engine.load_gguf_model(tiny)
    request = engine.submit_request("hi", SamplingParams(max_tokens=4, temperature=0))
    assert "".join(request) == request.result().text
    engine.close()
    engine.close()


def test_a_request_goes_through_its_states(llm: LLM) -> None:
    seen: list[RequestState] = []
    first = threading.Event()
    go_on = threading.Event()

    def look(_: Any, __: Any) -> None:
        first.set()
        assert go_on.wait(PATIENCE)

    request = llm.stream(PROMPT, processors=[look], **SHORT)
    assert first.wait(PATIENCE)
    seen.append(request.state)
    queued = llm.stream(PROMPT, **SHORT)
    seen.append(queued.state)
    assert request.timings.generated_tokens == 0
    go_on.set()
    done = request.result()
    assert seen == [RequestState.GENERATING, RequestState.QUEUED]
    assert (request.state, request.finish_reason) == (RequestState.DONE, "length")
    assert request.text == done.text
    assert queued.result().token_ids == done.token_ids
    assert done.timings.queue_seconds >= 0
    assert (done.timings.prompt_tokens, done.timings.generated_tokens) == (5, 5)


def test_many_threads_at_once_get_what_each_gets_alone(llm: LLM) -> None:
    prompts = [[1 + n, *PROMPT, *([n] * (7 * n))] for n in range(16)]
    alone = [
        llm.generate(prompt, seed=n, max_tokens=12).token_ids for n, prompt in enumerate(prompts)
    ]
    found: dict[int, tuple[int, ...]] = {}

    def work(number: int) -> None:
        found[number] = llm.generate(prompts[number], seed=number, max_tokens=12).token_ids

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[n] for n in range(16)] == alone


def test_async_reading(llm: LLM) -> None:
    expected = llm.generate(PROMPT, **SHORT)

    async def read(number: int) -> str:
        if number % 2:
            return (await llm.astream(PROMPT, **SHORT)).text
        return "".join([piece async for piece in llm.astream(PROMPT, **SHORT)])

    async def main() -> list[str]:
        return await asyncio.gather(*(read(number) for number in range(10)))

    assert asyncio.run(main()) == [expected.text] * 10


def test_cancelling_a_task_cancels_its_request(llm: LLM) -> None:
    async def main() -> None:
        request = llm.astream(PROMPT, **ENDLESS)
        task = asyncio.ensure_future(_whole(request))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while request.state is not RequestState.CANCELLED:
            await asyncio.sleep(0.001)

    async def _whole(request: Any) -> None:
        await request

    asyncio.run(main())
    wait_until(lambda: held_blocks(llm) == 0)


def test_an_error_reaches_who_awaits(llm: LLM) -> None:
    def fail(_: Any, __: Any) -> None:
        raise RuntimeError("no")

    async def main() -> None:
        with pytest.raises(ProcessorError):
            await llm.astream(PROMPT, processors=[fail], **SHORT)
        with pytest.raises(ProcessorError):
            async for _ in llm.astream(PROMPT, processors=[fail], **SHORT):
                pass

    asyncio.run(main())


def test_cancelling_keeps_what_was_written(llm: LLM) -> None:
    request = llm.stream(PROMPT, **ENDLESS)
    first = next(request)
    request.cancel()
    request.cancel()
    wait_until(lambda: request.state is RequestState.CANCELLED)
    assert request.text.startswith(first)
    assert "".join((first, *request)) == request.text, "iterating ends quietly"
    with pytest.raises(RequestCancelledError):
        request.result()
    assert held_blocks(llm) == 0
    done = llm.stream(PROMPT, **SHORT)
    done.result()
    done.cancel()
    assert done.state is RequestState.DONE


def test_dropping_a_request_cancels_it(llm: LLM) -> None:
    request = llm.stream(PROMPT, **ENDLESS)
    next(request)
    del request
    gc.collect()
    wait_until(lambda: llm.stats.running == 0)
    assert held_blocks(llm) == 0


def test_an_llm_lives_as_long_as_its_requests(tiny: Path) -> None:
    request = LLM(tiny, threads=1).stream(PROMPT, **SHORT)
    gc.collect()
    assert len(list(request)) > 0
    assert request.state is RequestState.DONE


def test_a_failing_request_fails_alone(llm: LLM) -> None:
    expected = llm.generate(PROMPT, **LONG).token_ids
    others = [llm.stream(PROMPT, **LONG) for _ in range(3)]

    def fail(token_ids: np.ndarray, _: Any) -> None:
        if len(token_ids) > 8:
            raise ValueError("enough")

    wrong = llm.stream(PROMPT, processors=[fail], **LONG)
    with pytest.raises(ProcessorError) as caught:
        list(wrong)
    assert isinstance(caught.value.__cause__, ValueError)
    assert wrong.state is RequestState.FAILED
    assert len(wrong.token_ids) == 4
    assert [other.result().token_ids for other in others] == [expected] * 3
    assert held_blocks(llm) == 0


def test_an_error_of_the_model_ends_those_that_ran(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = llm.engine.model.forward

    def fail(*_: Any) -> None:
        raise MemoryError("none left")

    monkeypatch.setattr(llm.engine.model, "forward", fail)
    with pytest.raises(MemoryError, match="none left"):
        llm.generate(PROMPT, **SHORT)
    monkeypatch.setattr(llm.engine.model, "forward", real)
    assert len(llm.generate(PROMPT, **SHORT).token_ids) == 5
    assert held_blocks(llm) == 0


def test_a_full_queue_says_so(tiny: Path) -> None:
    hold = threading.Event()
    began = threading.Event()

    def wait(_: Any, __: Any) -> None:
        began.set()
        assert hold.wait(PATIENCE)

    with LLM(tiny, threads=1, max_running=1, max_queue=2) as llm:
        running = llm.stream(PROMPT, processors=[wait], **SHORT)
        assert began.wait(PATIENCE)
        waiting = [llm.stream(PROMPT, **SHORT) for _ in range(2)]
        with pytest.raises(QueueFullError, match="2 requests are waiting"):
            llm.stream(PROMPT, **SHORT)
        hold.set()
        assert len({request.result().text for request in (running, *waiting)}) == 1


def test_a_batch_longer_than_the_queue(tiny: Path) -> None:
    with LLM(tiny, threads=1, max_running=2, max_queue=3) as llm:
        prompts = [[n + 1, 5] for n in range(20)]
        done = llm.batch(prompts, **SHORT)
        assert [d.token_ids for d in done] == [
            llm.generate(prompt, **SHORT).token_ids for prompt in prompts
        ]
        assert llm.batch([]) == []


def test_a_time_limit_holds_in_the_queue(tiny: Path) -> None:
    with LLM(tiny, threads=1, max_running=1) as llm:
        running = llm.stream(PROMPT, **ENDLESS)
        done = llm.generate(PROMPT, time_limit=0.001, **ENDLESS)
        assert done.finish_reason == "time"
        running.cancel()


def test_closing_fails_what_has_not_ended(tiny: Path) -> None:
    llm = LLM(tiny, threads=1, max_running=1)
    requests = [llm.stream(PROMPT, **ENDLESS) for _ in range(3)]
    next(requests[0])
    llm.close()
    for request in requests:
        with pytest.raises(ModelError, match="is closed"):
            request.result()
        assert request.state is RequestState.FAILED
    with pytest.raises(ModelError, match="is closed"):
        llm.generate(PROMPT)


def test_a_processor_may_close_the_engine(tiny: Path) -> None:
    llm = LLM(tiny, threads=1)

    def close(_: Any, __: Any) -> None:
        llm.close()

    with pytest.raises(ModelError, match="is closed"):
        llm.generate(PROMPT, processors=[close], **SHORT)


def test_a_processor_cannot_wait_for_another_text(llm: LLM) -> None:
    def ask(_: Any, __: Any) -> None:
        llm.generate(PROMPT, **SHORT)

    with pytest.raises(ProcessorError) as caught:
        llm.generate(PROMPT, processors=[ask], **SHORT)
    assert "cannot wait for another request there" in str(caught.value.__cause__)
    assert len(llm.generate(PROMPT, **SHORT).token_ids) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_running": 0}, "max_running is 0; it must be a number from 1 to 1024"),
        (
            {"max_running": 65},
            "max_running is 65, and a model of which layers run on the CPU takes",
        ),
        ({"max_queue": True}, "max_queue is True"),
        ({"chunk_tokens": 4097}, "chunk_tokens is 4097"),
        ({"cache_tokens": 0}, "cache_tokens is 0"),
        ({"reuse": "some"}, "reuse is 'some'; it must be one of all, prompt, none"),
        ({"speculation": "magic"}, "speculation is 'magic'"),
        ({"device": "tpu"}, "device is 'tpu'; it must be one of cpu, cuda, auto, or cuda:0"),
        ({"device": 0}, "device is 0; it must be one of"),
        ({"device": "cuda:\N{FULLWIDTH DIGIT ONE}"}, "it must be one of"),
        ({"device": "cuda:"}, "device is 'cuda:'; it must be"),
        ({"device": "cuda:-1"}, "device is 'cuda:-1'; it must be"),
        ({"device": "cuda:x"}, "device is 'cuda:x'; it must be"),
        ({"device": "cpu:1"}, "device is 'cpu:1'; it must be"),
        ({"speculation": "ngram", "draft": "x"}, "'ngram' and draft exclude each other"),
    ],
)
def test_options_are_checked(tiny: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LLM(tiny, **options)


def test_an_unknown_option_is_named(tiny: Path) -> None:
    with pytest.raises(TypeError, match="unknown parameter 'thread'; did you mean 'threads'"):
        LLM(tiny, thread=2)


def test_beams_do_not_exceed_the_engine(llm: LLM) -> None:
    with pytest.raises(SamplingError, match="width is 33; it must be at most 32"):
        llm.beam_search(PROMPT, 33)


def test_the_engine_counts(llm: LLM) -> None:
    llm.generate(PROMPT, **SHORT)
    stats = llm.stats
    assert (stats.waiting, stats.running) == (0, 0)
    assert (stats.steps, stats.prompt_tokens, stats.generated_tokens) == (5, 5, 5)
    assert (stats.preemptions, stats.blocks_held) == (0, 0)
