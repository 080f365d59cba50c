"""Link: the client's end of the connection to an engine's process.

Messages go out from any thread, and answers and news of texts come in. If the process ends, all
that wait for it get an error. It does not know what the engine does.
"""

import itertools
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from typing import Any

from ingot.arrays import Ints
from ingot.engine.adapters import AdapterUse
from ingot.engine.health import Home
from ingot.engine.process.messages import Answer, Beat, Call, Fault, News, Release, Rows, Taken
from ingot.engine.process.remote_text import RemoteText
from ingot.engine.task import ReadLogits
from ingot.engine.wakeups import Outbox
from ingot.errors import EngineError, IngotError, ModelError

_CLOSING_SECONDS = 60.0  # for the step that runs; then the process is ended


class Asking(Future[Any]):
    """An answer to come."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class Link:
    """A connection to a process."""

    def __init__(self, connection: Connection, process: BaseProcess, name: str) -> None:
        """`name` of the model, for errors."""
        self.home = Home(name)
        self._connection = connection
        self._process = process
        self._name = name
        self._numbers = itertools.count(1)
        self._texts: dict[int, RemoteText] = {}
        self._answers: dict[int, Asking] = {}
        self._rows: dict[int, SimpleQueue[Rows | Answer]] = {}
        self._outgoing: SimpleQueue[object] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._trouble: Fault | None = None  # as the process says
        self._ended: IngotError | None = None  # why nothing more can be asked
        self._closing = False

    def receive(self) -> object:
        """The next message while the model is opened; None if the process has ended."""
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            return None

    def start(self) -> None:
        """Receive and send in threads."""
        for work in (self._send, self._receive):
            thread = threading.Thread(target=work, name="ingot-link", daemon=True)
            thread.start()
            self._threads.append(thread)

    def post(self, message: object) -> None:
        """Send a message, from any thread, also from a finalizer."""
        self._outgoing.put(message)

    def ask(self, make: Callable[[int], object], text: RemoteText | None = None) -> Asking:
        """Send the message that is made for a number; `text` gets the news of that number."""
        self.check()
        number = next(self._numbers)
        asking = Asking(number)
        self._answers[number] = asking
        if text is not None:
            text.channel.watch = self.check
            self._texts[number] = text
        self.post(make(number))
        if self._ended is not None:  # since the check
            self._fail_all(self._ended)
        return asking

    def hold(self, name: str, *arguments: object) -> Asking:
        """Call a method whose result stays in the process as long as the answer exists here."""
        asking = self.ask(lambda number: Call(number, name, arguments))
        weakref.finalize(asking, self.post, Release(asking.number)).atexit = False
        return asking

    def read_rows(
        self, adapter: AdapterUse | None, tokens: Ints, first: int, read: ReadLogits
    ) -> None:
        """Have a text run and read the logits of its tokens, some rows at a time."""
        rows: SimpleQueue[Rows | Answer] = SimpleQueue()

        def asked(number: int) -> Call:
            self._rows[number] = rows
            use = adapter and adapter.without_weights
            return Call(number, "read_rows", (use, tokens, first))

        asking = self.ask(asked)
        asking.add_done_callback(lambda _: rows.put(Answer(asking.number)))
        try:
            while isinstance(message := rows.get(), Rows):
                try:
                    read(message.start, message.logits)
                except BaseException:
                    self.post(Taken(asking.number, wants_more=False))
                    raise
                self.post(Taken(asking.number, wants_more=True))
        finally:
            self._rows.pop(asking.number, None)
        asking.result()

    def check(self) -> None:
        """Raise an error if the engine cannot answer."""
        self.home.check()
        if self._ended is not None:
            raise self._ended
        if self._trouble is not None:
            raise self._trouble.error()

    def close(self) -> None:
        """End the process after the running step; what has not ended fails."""
        if not self.home.is_here:
            return
        self._closing = True
        self._outgoing.put(None)
        if not self._threads:  # the model was never opened
            self._connection.close()
        self._process.join(_CLOSING_SECONDS)
        if self._process.is_alive():
            self._process.kill()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_CLOSING_SECONDS)

    def _send(self) -> None:
        while (message := self._outgoing.get()) is not None:
            try:
                self._connection.send(message)
            except OSError:  # the receiver sees the end too
                return
            except Exception as error:  # a message that cannot be pickled
                self._refuse(message, error)
        with suppress(OSError):
            self._connection.send(None)

    def _refuse(self, message: object, error: Exception) -> None:
        number = getattr(message, "number", 0)
        self._texts.pop(number, None)
        if asking := self._answers.pop(number, None):
            asking.set_exception(
                ModelError(
                    f"the request cannot be sent to the engine's process ({error}); functions, "
                    "such as logits processors, need engine_process=False"
                )
            )

    def _receive(self) -> None:
        try:
            self._read_messages()
        finally:
            self._end()

    def _read_messages(self) -> None:
        outbox = Outbox()
        while (message := self.receive()) is not None:
            if isinstance(message, list):
                for news in message:
                    self._take(news, outbox)
                outbox.send()
            elif isinstance(message, Answer):
                self._answer(message)
            elif isinstance(message, Rows):
                if message.number in self._rows:
                    self._rows[message.number].put(message)
            elif isinstance(message, Beat):
                self._trouble = message.trouble

    def _take(self, news: News, outbox: Outbox) -> None:
        if (text := self._texts.get(news.number)) is not None:
            text.take(news, outbox)
        if news.end is not None:
            self._texts.pop(news.number, None)

    def _answer(self, answer: Answer) -> None:
        asking = self._answers.pop(answer.number, None)
        if asking is None or not asking.set_running_or_notify_cancel():
            return
        if answer.fault is None:
            asking.set_result(answer.value)
        else:
            self._texts.pop(answer.number, None)
            asking.set_exception(answer.fault.error())

    def _end(self) -> None:
        self._process.join(1.0)
        if self._closing:
            error: IngotError = ModelError(f"{self._name} is closed; open it again")
        else:
            error = EngineError(
                f"the process that runs {self._name} has ended (exit status "
                f"{self._process.exitcode}); open the model again"
            )
        self._ended = error
        self._outgoing.put(None)
        self._fail_all(error)
        self._connection.close()

    def _fail_all(self, error: IngotError) -> None:
        while self._texts:
            _, text = self._texts.popitem()
            text.fail(error)
        while self._answers:
            _, asking = self._answers.popitem()
            if asking.set_running_or_notify_cancel():
                asking.set_exception(error)
