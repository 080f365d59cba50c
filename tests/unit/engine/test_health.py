"""A step thread that fails, hangs or cannot be started: those who wait are told, at once."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holding import PATIENCE
from ingot import LLM
from ingot.engine.wakeups import Listener
from ingot.errors import ConfigError, EngineError, ModelError, ProcessorError, ThreadLimitError
from ingot.sampling import Grammar

LONG = {"max_tokens": 200, "ignore_eos": True, "temperature": 0}
ENDLESS = {**LONG, "max_tokens": None, "context_overflow": "shift"}


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, ValueError])
def test_what_a_processor_raises_ends_its_request_alone(
    llm: LLM, kind: type[BaseException]
) -> None:
    def broken(_: Any, __: Any) -> None:
        raise kind

    alone = llm.generate("abc", **LONG).text
    bystander = llm.stream("abc", **LONG)
    next(bystander)
    with pytest.raises(ProcessorError, match="broken failed") as caught:
        llm.stream("abc", processors=[broken]).result(PATIENCE)
    assert isinstance(caught.value.__cause__, kind)
    assert bystander.result(PATIENCE).text == alone


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_is_raised_between_two_steps_is_the_callers(
    llm: LLM, kind: type[BaseException]
) -> None:
    def broken(*_: Any) -> None:
        raise kind

    bystander = llm.stream("abc", **LONG)
    next(bystander)
    with pytest.raises(kind):
        llm.engine._loop.call(broken)
    with pytest.raises(kind):
        llm.engine.read_rows(llm.engine.encode("abc"), broken)
    assert len(bystander.result(PATIENCE).token_ids) == 200


class ClosingLoop(asyncio.SelectorEventLoop):
    """Is closed between the question whether it is and what is done then."""

    seems_open = False

    def is_closed(self) -> bool:
        return super().is_closed() and not self.seems_open


def test_an_event_loop_that_is_closed_while_it_is_called_back(llm: LLM) -> None:
    listeners: list[Listener] = []

    async def wait() -> None:
        request = llm.stream("abc", max_tokens=1)
        waiting = asyncio.ensure_future(request._called_back(listeners.append))
        await asyncio.sleep(0)
        waiting.cancel()

    with asyncio.Runner(loop_factory=ClosingLoop) as runner:
        loop = runner.get_loop()
        runner.run(wait())
    assert isinstance(loop, ClosingLoop)
    loop.seems_open = True
    request = llm.stream("abc", **LONG)
    request._channel.call_at_end(listeners[0])
    assert len(request.result(PATIENCE).token_ids) == 200
    assert len(llm.stream("abc", **LONG).result(PATIENCE).token_ids) == 200
    loop.seems_open = False


def test_a_thread_that_fails_fails_all_that_wait(llm: LLM) -> None:
    def broken() -> None:
        raise KeyboardInterrupt("of the inside")

    requests = [llm.stream("abc", **ENDLESS) for _ in range(40)]  # some of them in the queue
    llm.engine._loop._inbox.put(broken)
    for request in requests:
        with pytest.raises(EngineError, match=r"has ended with an error.*of the inside"):
            request.result(PATIENCE)
    for use in (lambda: llm.generate("abc"), llm.engine.clear_cache, llm.engine.check):
        with pytest.raises(EngineError, match="open the model again"):
            use()
    llm.close()


@contextmanager
def hanging(llm: LLM) -> Iterator[None]:
    """Keep a request in its step."""
    began, go_on = threading.Event(), threading.Event()

    def hang(_: Any, __: Any) -> None:
        began.set()
        go_on.wait(PATIENCE)

    request = llm.stream("abc", max_tokens=1, processors=[hang])
    assert began.wait(PATIENCE)
    try:
        yield
    finally:
        go_on.set()
        request.cancel()


def test_a_step_that_hangs_fails_what_waits(tiny: Path) -> None:
    async def wait(llm: LLM) -> None:
        await llm.astream("abc", **LONG)

    with LLM(tiny, threads=1, step_timeout=2.0) as llm:
        llm.engine.check()
        bystander = llm.stream("abc", **ENDLESS)
        next(bystander)
        with hanging(llm):
            before = llm.stats.steps
            with pytest.raises(EngineError, match="step_timeout is 2 s"):
                asyncio.run(wait(llm))
            for use in (
                bystander.result,
                lambda: list(bystander),
                lambda: llm.generate("abc"),
                llm.engine.clear_cache,
                llm.engine.check,
                llm.close,
            ):
                with pytest.raises(EngineError, match="step_timeout is 2 s"):
                    use()
            assert llm.stats.step_seconds > 2
            assert llm.stats.steps == before


def test_an_engine_recovers_when_the_step_ends(tiny: Path) -> None:
    with LLM(tiny, threads=1, step_timeout=2.0) as llm:
        with hanging(llm), pytest.raises(EngineError, match="step_timeout"):
            llm.engine.clear_cache()
        deadline = time.monotonic() + PATIENCE
        while llm.stats.step_seconds:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        llm.engine.check()
        assert len(llm.generate("abc", **LONG).token_ids) == 200
        assert llm.stats.running == llm.stats.waiting == llm.stats.blocks_held == 0


def test_a_closed_engine_says_so(llm: LLM) -> None:
    llm.engine.check()
    llm.close()
    with pytest.raises(ModelError, match="is closed"):
        llm.engine.check()


def test_no_step_is_too_long_without_a_limit(tiny: Path) -> None:
    with LLM(tiny, threads=1, step_timeout=None) as llm, hanging(llm):
        llm.engine.check()


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan")])
def test_limits_that_make_no_sense(tiny: Path, wrong: float) -> None:
    with pytest.raises(ConfigError, match="step_timeout"):
        LLM(tiny, step_timeout=wrong)


@contextmanager
def no_more_threads() -> Iterator[None]:
    """Let no thread of Python's start: there is no memory for its stack."""
    before = threading.stack_size(1 << 46)
    try:
        yield
    finally:
        threading.stack_size(before)


def test_a_step_thread_that_cannot_be_started_is_tried_again(llm: LLM) -> None:
    with no_more_threads():
        for use in (lambda: llm.generate("abc"), llm.engine.clear_cache):
            with pytest.raises(ThreadLimitError, match="cannot be started"):
                use()
    assert llm.generate("abc", max_tokens=3, ignore_eos=True).finish_reason == "length"
    assert llm.stats.waiting == 0


def test_masks_are_made_without_a_second_thread(llm: LLM) -> None:
    grammar = Grammar.gbnf('root ::= "a" [b-d] "e"')
    llm.generate("abc", max_tokens=1)
    llm.engine.compile_grammar(grammar).result()  # which takes a thread of its own
    with no_more_threads():
        text = llm.stream("abc", grammar=grammar).result(PATIENCE).text
    assert (text[0], text[1] in "bcd", text[2]) == ("a", True, "e")
    assert llm.stream("abc", grammar=grammar, seed=1).result(PATIENCE).text[0] == "a"


_FEW_THREADS = """
import os, resource, sys
from ingot import LLM
from ingot.engine.wakeups import Listener
from ingot.errors import ThreadLimitError
path = sys.argv[1]
LLM(path, threads=1, weights="map").close()
size = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGESIZE")
_, most = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (size + (32 << 20), most))
before = len(os.listdir("/proc/self/task"))
try:
    LLM(path, threads=32)
except ThreadLimitError as error:
    print(error)
print(len(os.listdir("/proc/self/task")) - before)
resource.setrlimit(resource.RLIMIT_AS, (most, most))  # stacks of the threads that ended stay
with LLM(path, threads=1) as llm:
    print(len(llm.tokenizer.encode("abc")))
"""


def test_a_model_with_more_threads_than_there_are(tiny: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _FEW_THREADS, tiny],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    said, left, tokens = ran.stdout.splitlines()
    assert said.startswith("the 32 threads of the model cannot be started (")
    assert (left, tokens) == ("0", "4")
