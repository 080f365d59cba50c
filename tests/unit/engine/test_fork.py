"""An engine in a process that has it from a fork: errors at once, and the parent goes on."""

import asyncio
import gc
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.queues import SimpleQueue
from pathlib import Path

from holding import PATIENCE
from ingot import LLM
from ingot.engine import Request
from ingot.errors import EngineError

ELSEWHERE = "was opened in another process; open the model again after the fork"
LONG = {"max_tokens": 60, "ignore_eos": True, "temperature": 0}
ENDLESS = {**LONG, "max_tokens": None, "context_overflow": "shift"}


def in_child(function: Callable[[], str]) -> str:
    """What a function says in a fork of this process; one that hangs is ended."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # this process has threads
        child = os.fork()
    if child == 0:
        try:
            said = function()
        except BaseException:
            said = traceback.format_exc()
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    said = b""
    if select.select([reading], [], [], PATIENCE)[0]:
        said = os.read(reading, 1 << 16)
    os.close(reading)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return said.decode() or "it hung"


def refusal(use: Callable[[], object]) -> str:
    """Fine if it is the error that a fork gets."""
    try:
        use()
    except EngineError as error:
        return "" if ELSEWHERE in str(error) else f"{use}: {error}\n"
    return f"{use}: no error\n"


def test_every_use_is_refused_and_the_parent_goes_on(tiny: Path) -> None:
    with LLM(tiny, threads=2) as llm:
        alone = llm.generate("abc", **LONG).text
        llm.embed("abc")
        streams = [llm.stream("abc", **LONG) for _ in range(4)]
        running = llm.stream("abc", **ENDLESS)
        next(running)

        async def wait() -> None:
            await running

        async def read() -> None:
            async for _ in running:
                pass

        def child() -> str:
            found = "".join(
                map(
                    refusal,
                    (
                        running.result,
                        lambda: list(running),
                        lambda: asyncio.run(wait()),
                        lambda: asyncio.run(read()),
                        running.fork,
                        lambda: llm.generate("abc"),
                        lambda: llm.stream("abc"),
                        lambda: llm.embed("abc"),
                        llm.engine.clear_cache,
                        llm.engine.check,
                        lambda: llm.stats,
                    ),
                )
            )
            running.cancel()
            llm.close()
            return found or "all refused"

        assert in_child(child) == "all refused"
        assert [stream.result().text for stream in streams] == [alone] * 4
        running.cancel()


def test_locks_that_others_had_do_not_hold_up_a_child(llm: LLM) -> None:
    request = llm.stream("abc", **ENDLESS)
    next(request)
    taken, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with request._channel._lock, llm.engine._loop._state:
            taken.set()
            let_go.wait(PATIENCE)

    holder = threading.Thread(target=hold)
    holder.start()
    assert taken.wait(PATIENCE)

    def child() -> str:
        found = refusal(request.result) + refusal(lambda: llm.generate("abc"))
        request.cancel()
        llm.close()
        return found or "none was waited for"

    try:
        assert in_child(child) == "none was waited for"
    finally:
        let_go.set()
        holder.join()
    assert next(request)
    request.cancel()


def test_many_forks_while_texts_are_written(tiny: Path) -> None:
    with LLM(tiny, threads=1) as llm:
        alone = llm.generate("abc", **LONG).text
        for _ in range(8):
            request = llm.stream("abc", **ENDLESS)
            next(request)
            assert (
                in_child(lambda request=request: refusal(request.result) or "refused") == "refused"
            )
            request.cancel()
            assert llm.generate("abc", **LONG).text == alone


def test_a_result_that_is_there_can_be_read_in_a_child(llm: LLM) -> None:
    request = llm.stream("abc", max_tokens=5, temperature=0)
    text = request.result().text
    assert in_child(lambda: request.result().text) == text
    assert in_child(lambda: "".join(request)) == text


def test_a_child_opens_a_model_of_its_own(llm: LLM, tiny: Path) -> None:
    text = llm.generate("abc", max_tokens=5, temperature=0).text

    def child() -> str:
        with LLM(tiny, threads=2) as own:
            return own.generate("abc", max_tokens=5, temperature=0).text

    assert in_child(child) == text


def test_a_child_that_drops_the_engine_waits_for_no_thread(tiny: Path) -> None:
    kept = [LLM(tiny, threads=2)]
    kept[0].generate("abc", max_tokens=2)

    def child() -> str:
        kept.clear()
        gc.collect()
        return "gone"

    assert in_child(child) == "gone"
    kept.pop().close()


def tell_refusal(request: Request, answers: "SimpleQueue[str]") -> None:
    answers.put(refusal(request.result) or "refused")


def test_multiprocessing_with_fork(llm: LLM) -> None:
    request = llm.stream("abc", **ENDLESS)
    fork = multiprocessing.get_context("fork")
    answers: SimpleQueue[str] = fork.SimpleQueue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process = fork.Process(target=tell_refusal, args=(request, answers))
        process.start()
    process.join(PATIENCE)
    assert process.exitcode == 0
    assert answers.get() == "refused"
    assert next(request)
    request.cancel()


_EXITS = """
import os, sys
from ingot import LLM
llm = LLM(sys.argv[1], threads=2)
request = llm.stream("abc", max_tokens=60, ignore_eos=True)
next(request)
child = os.fork()
if child == 0:
    sys.exit(7)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(status, len(request.result().token_ids))
"""


def test_a_child_that_ends_as_programs_do_is_quiet(tiny: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _EXITS, tiny],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (ran.stdout, ran.stderr, ran.returncode) == ("7 60\n", "", 0)
