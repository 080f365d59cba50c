"""The process of an engine: it opens the model, and does what its client asks for.

In: messages of the client. Out: answers, and after each step one message with the news of all
texts, which the step thread sends itself. It ends when the client closes the connection. Signals
are the client's business: Ctrl-C in a terminal reaches both.
"""

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from ingot.arrays import Ints, Logits
from ingot.backends.backend import Stage
from ingot.engine.adapters import AdapterUse
from ingot.engine.channel import Progress
from ingot.engine.engine import InferenceEngine
from ingot.engine.options import EngineOptions
from ingot.engine.process.messages import (
    Answer,
    Beat,
    Call,
    Cancel,
    End,
    Fault,
    News,
    Opened,
    Opening,
    Release,
    Rows,
    Submit,
    Taken,
    unpacked,
)
from ingot.engine.request import Request
from ingot.engine.text_task import TextTask
from ingot.engine.wakeups import WATCH_SECONDS, GroupListener
from ingot.errors import IngotError, RequestCancelledError
from ingot.machine import END_SIGNALS

_THREADS = 4  # for calls that take long
# A message waits so long for the interpreter lock while the step thread works; Python's default of
# 5 ms would delay every request by that.
_SWITCH_SECONDS = 0.0002


def run_engine(connection: Connection, path: str, options: EngineOptions) -> None:
    """Open a model and serve a client until it closes the connection."""
    for number in END_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    sys.setswitchinterval(_SWITCH_SECONDS)
    send = Sender(connection)

    def opening(stage: Stage, done: int, total: int) -> None:
        send(Opening(stage, done, total))

    engine = InferenceEngine(options)
    try:
        engine.load_gguf_model(path, opening)
    except BaseException as error:  # for the client
        send(Answer(0, fault=Fault.of(error)))
        return
    gc.collect()
    gc.freeze()  # what is there now stays: later collections need not look at it
    model = engine.model
    send(
        Opened(
            context=model.context,
            threads=model.threads,
            decode_sequences=model.decode_sequences,
            default_running=model.default_running,
            step_tokens=model.step_tokens,
            precision=model.precision,
            gpu=model.gpu,
            why_cpu=model.why_cpu,
            copies=model.copies,
        )
    )
    worker = _Worker(connection, engine, send)
    try:
        worker.serve()
    finally:
        engine.close()
        connection.close()
        os._exit(0)  # whatever a thread still waits for: nobody would get it


class Sender:
    """Sends messages from any thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def __call__(self, message: object) -> None:
        """Send a message; the reader notices a client that is gone."""
        try:
            with self._lock:
                self._connection.send(message)
        except OSError:
            return


class _Relay(GroupListener):
    """Tells the client what is new of one text."""

    __slots__ = ("_number", "_read", "_send", "_task", "_told")

    def __init__(self, number: int, task: TextTask, send: Sender) -> None:
        self._number = number
        self._task = task
        self._send = send
        self._read = 0  # events of the channel
        self._told = 0  # tokens

    @property
    def group(self) -> object:
        """All texts of the client."""
        return self._send

    def call_all(self, listeners: "Sequence[_Relay]") -> None:
        """Send the news of a step in one message."""
        self._send([listener.news() for listener in listeners])
        for listener in listeners:
            listener.listen()

    def listen(self) -> None:
        """Wait for the next news, if there will be any."""
        if self._read >= 0:
            self._task.channel.call_beyond(self._read, self)

    def news(self) -> News:
        """What has come since the last time."""
        channel, sampled = self._task.channel, self._task.transcript.sampled
        is_ended = channel.is_published  # looked at before the events, of which it is the last
        events = channel.events[self._read :]
        self._read += len(events)
        tokens = sampled[self._told :]
        self._told += len(tokens)
        plain = all(token.logprobs is token.chain_logprobs is None for token in tokens)
        end = None
        if is_ended:
            self._read = -1
            fault = None if channel.error is None else Fault.of(channel.error)
            done = channel.result() if fault is None else None
            end = End(done, fault, self._task.timings)
        return News(
            self._number,
            "".join(event for event in events if isinstance(event, str)),
            [token.token for token in tokens] if plain else tokens,
            [event for event in events if isinstance(event, Progress)],
            end,
        )


class _Worker:
    """Does what the client asks for."""

    def __init__(self, connection: Connection, engine: InferenceEngine, send: Sender) -> None:
        self._connection = connection
        self._engine = engine
        self._send = send
        self._requests: dict[int, Request] = {}
        self._held: dict[int, Future[Any]] = {}  # compiled grammars, while the client needs them
        self._taken: dict[int, SimpleQueue[bool]] = {}
        self._pool = ThreadPoolExecutor(_THREADS, "ingot-calls")
        self._calls: dict[str, Callable[..., Any]] = {
            "prepare_adapters": engine.model.prepare_adapters,
            "attach_adapter": engine.attach_adapter,
            "clear_cache": engine.clear_cache,
            "save": self._save,
            "restore": engine.restore,
            "pooled": engine.programs.pooled,
            "scores": engine.programs.scores,
        }

    def serve(self) -> None:
        """Handle messages until the client closes the connection."""
        threading.Thread(target=self._beat, name="ingot-beat", daemon=True).start()
        while True:
            try:
                message = self._connection.recv()
            except (EOFError, OSError):
                return
            if message is None:
                return
            self._handle(message)

    def _handle(self, message: object) -> None:
        match message:
            case Submit(number, asked):
                self._answer(number, partial(self._submit, number, asked))
            case Cancel(number):
                if request := self._requests.pop(number, None):
                    request.cancel()
            case Call(number, "stats"):
                self._answer(number, lambda: (self._engine.stats, self._engine.token_gaps))
            case Call(number, "compile_grammar", (grammar,)):
                self._compile(number, grammar)
            case Call(number, "read_rows", (adapter, tokens, first)):
                self._taken[number] = SimpleQueue()
                read = partial(self._read_rows, number, adapter, tokens, first)
                self._pool.submit(self._answer, number, read)
            case Call(number, name, arguments):
                self._pool.submit(self._answer, number, partial(self._calls[name], *arguments))
            case Taken(number, wants_more):
                if number in self._taken:
                    self._taken[number].put(wants_more)
            case Release(number):
                if held := self._held.pop(number, None):
                    held.cancel()

    def _answer(self, number: int, work: Callable[[], Any]) -> None:
        try:
            self._send(Answer(number, work()))
        except BaseException as error:  # for the client
            self._send(Answer(number, fault=Fault.of(error)))

    def _submit(self, number: int, asked: dict[str, Any]) -> int:
        task = self._engine.text_of(unpacked(asked))
        request = self._engine.start(task)
        self._requests[number] = request
        task.channel.call_at_end(lambda: self._forget(number))
        _Relay(number, task, self._send).listen()
        return request.seed

    def _forget(self, number: int) -> None:
        self._requests.pop(number, None)

    def _compile(self, number: int, grammar: Any) -> None:
        compiling = self._engine.compile_grammar(grammar)
        self._held[number] = compiling

        def told(done: "Future[Any]") -> None:
            if not done.cancelled():
                self._answer(number, lambda: done.result() and None)

        compiling.add_done_callback(told)

    def _read_rows(self, number: int, adapter: AdapterUse | None, tokens: Ints, first: int) -> None:
        def read(start: int, logits: Logits) -> None:
            self._send(Rows(number, start, logits))
            if not self._taken[number].get():
                raise RequestCancelledError("the reader of the logits has ended")

        try:
            self._engine.read_rows_with(adapter, tokens, read, first)
        finally:
            del self._taken[number]

    def _save(self, tokens: Ints, path: str, prompted: int | None, most_bytes: int | None) -> int:
        return self._engine.save(tokens, path, prompted=prompted, most_bytes=most_bytes)

    def _beat(self) -> None:
        """Say every second whether the step thread can continue."""
        wait = threading.Event()
        while not wait.wait(WATCH_SECONDS):
            try:
                self._engine.check()
                self._send(Beat(None))
            except IngotError as error:
                self._send(Beat(Fault.of(error)))
