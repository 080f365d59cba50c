"""A bystander: a client that reads a stream while others attack the same server.

    with bystanding(tmp_path) as bystander:
        httpx.post(f"{bystander.url}/completion", content=bomb, timeout=PATIENCE)
        bystander.read_on()
    assert bystander.longest_lag <= LONGEST_LAG

The server is the real one (`ingot.server.process`), in a thread of this process, on a real port, so
that the engine's step counter can be read. Its model is the tiny one, whose steps are made as long
as those of an ordinary model. The bystander's text gets one token, and so one event, in every
step. At each event the reader looks at the step counter: pauses are counted in steps, not seconds.

A test makes its large bodies before the context begins: Python that works here keeps the server,
which is in the same process, from its turn.
"""

import asyncio
import hashlib
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
from serving import PATIENCE

from ingot.engine import EngineOptions
from ingot.engine.loop import StepLoop
from ingot.engine.step import Stepper
from ingot.server import ServedModel, ServerOptions, process
from ingot.server.state import Server
from tiny_llama import write_tiny_llama

STEP_SECONDS = 0.05  # of one core: as for a model of some billion weights
LONGEST_LAG = 3 + 1  # steps: three, and one that has a chunk of a prompt
CONTEXT = 65_536  # tokens that the bystander can read, nearly an hour of them
_WORK = bytes(1 << 20)  # about a millisecond to hash
_LETTER = 97  # the token of "a": a letter is an event at once, half a UTF-8 character is not


class Bystander:
    """Reads a text in a thread, and counts how many steps it had to wait for a piece."""

    def __init__(self, url: str, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self.url = url
        self.server = server
        self.loop = loop  # of the server; its thread answers all requests
        self.pieces = 0
        self.error: BaseException | None = None  # what ended its text
        self._counters = loop_of(server).counters
        self._longest = 0
        self._seen = 0  # the step counter at the last event
        self._changed = threading.Condition()
        self._is_leaving = False
        self._thread = threading.Thread(target=self._read, name="bystander")

    @property
    def steps(self) -> int:
        """Steps that the engine has made."""
        return self._counters.steps

    @property
    def longest_lag(self) -> int:
        """The most steps that the engine made from one piece to the next; 1 if none was late."""
        return max(self._longest, self.steps - self._seen if self._thread.is_alive() else 0)

    def forget(self) -> None:
        """Count anew: what was late so far is another test's."""
        self._longest = 0

    def read_on(self, pieces: int = 5) -> None:
        """Wait until some more pieces have come, and fail if none do."""
        wanted = self.pieces + pieces

        def come() -> bool:
            return self.pieces >= wanted or self.error is not None

        with self._changed:
            assert self._changed.wait_for(come, PATIENCE), "the bystander's text stands still"
        assert self.error is None, f"the bystander's text ended: {self.error!r}"

    def start(self) -> None:
        """Begin to read, and wait for the first pieces."""
        self._thread.start()
        self.read_on()

    def leave(self) -> None:
        """Read no more."""
        self._is_leaving = True
        self._thread.join(PATIENCE)

    def _read(self) -> None:
        body = {
            "prompt": "a",
            "max_tokens": CONTEXT - 16,
            "logit_bias": {str(_LETTER): 100},
            "temperature": 0,
            "stream": True,
        }
        try:
            with httpx.stream(
                "POST", f"{self.url}/v1/completions", json=body, timeout=PATIENCE
            ) as answer:
                assert answer.status_code == 200, answer.read()
                for line in answer.iter_lines():
                    if self._is_leaving:
                        return
                    if line:
                        self._note(line)
            raise AssertionError("it came to its end")
        except BaseException as error:  # for the thread of the test
            self._report(error)

    def _note(self, line: str) -> None:
        assert line.startswith("data: {"), line
        assert "error" not in line, line
        steps = self.steps
        if self.pieces:
            self._longest = max(self._longest, steps - self._seen)
        self._seen = steps
        self.pieces += 1
        self._report(None)

    def _report(self, error: BaseException | None) -> None:
        with self._changed:
            self.error = self.error or error
            self._changed.notify_all()


@contextmanager
def bystanding(
    folder: Path, engine: EngineOptions | None = None, **options: Any
) -> Iterator[Bystander]:
    """A server on a tiny model, and a bystander who reads from it until the end of the context.

    `options` are those of the server; the model's file is written to the folder.
    """
    longer = {"llama.context_length": CONTEXT}
    path = write_tiny_llama(folder / "bystander.gguf", keys=longer)
    model = ServedModel(
        name="tiny", path=path, engine=engine or EngineOptions(threads=1, context=CONTEXT)
    )
    asked = ServerOptions(models=(model,), port=0, shutdown_grace=0, **options)
    with running(asked) as (url, server, loop):
        slow_down(loop_of(server).stepper)
        bystander = Bystander(url, server, loop)
        bystander.start()
        try:
            yield bystander
        finally:
            bystander.leave()


@contextmanager
def running(options: ServerOptions) -> Iterator[tuple[str, Server, asyncio.AbstractEventLoop]]:
    """Serve in a thread of this process: the address, the server and its event loop."""
    started: Future[tuple[str, process._Process, asyncio.AbstractEventLoop]] = Future()

    class Remembered(process._Process):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            started.set_result((self._address, self, asyncio.get_running_loop()))

    def serve() -> None:
        try:
            process.serve(options, lambda _: None)
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=serve, name="server")
    with patch.object(process, "_Process", Remembered):
        thread.start()
        url, running, loop = started.result(PATIENCE)
    try:
        yield url, running._server, loop
    finally:
        loop.call_soon_threadsafe(running.handle_exit, signal.SIGTERM, None)
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the server does not stop"


def loop_of(server: Server) -> StepLoop:
    """What makes the steps of the first model."""
    llm = server.catalog.default.llm
    assert llm is not None, "the first model is opened at the start"
    return llm.engine._loop


def slow_down(stepper: Stepper) -> None:
    """Give its steps the length of an ordinary model's.

    They work for it, without the GIL, as a model does: on a busy machine steps are longer, too.
    """
    step = stepper.step

    def slow_step() -> None:
        end = time.thread_time() + STEP_SECONDS
        while time.thread_time() < end:
            hashlib.sha256(_WORK)
        step()

    stepper.step = slow_step
