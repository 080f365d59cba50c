"""Channel: what a request has produced so far, between the step thread and its readers.

The step thread writes pieces, progress and the end. Readers are threads that wait, or tasks of an
event loop that are called back. Pieces stay: a late reader finds all of them. A result is published
only when the engine has counted it in its statistics.

Ctrl-C may interrupt a waiting thread at any time. A plain lock survives that; a condition or an
event does not always, and the step thread would then wait for it forever.

The step thread may fail, hang, or be in another process. A reader calls `watch` before it waits and
once a second, which raises an error in these cases. After a fork, the lock may be held by a thread
that does not exist in the child, so what is there already is read without it.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ingot.engine.wakeups import WATCH_SECONDS, Listener, Outbox
from ingot.errors import IngotError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of the `total` tokens of a prompt are read."""

    done: int
    total: int


class Wish:
    """What the reader wants; separate from the channel, so that it can outlive the reader."""

    __slots__ = ("cancelled",)

    def __init__(self) -> None:
        self.cancelled = False


class Channel(Generic[T]):
    """Events in order, and a result or an error at the end."""

    def __init__(self) -> None:
        self.events: list[str | Progress] = []
        self.watch: Callable[[], None] = _nothing  # raises an error if nothing more can come
        self.wish = Wish()  # the step thread looks at it before every step
        self.outbox: Outbox | None = None  # of the step thread; None: readers are woken at once
        self.is_ended = False  # for the step thread: nothing more will come
        self.is_published = False  # for readers
        self._lock = threading.Lock()
        self._result: T | None = None
        self._error: BaseException | None = None
        self._listeners: list[Listener] = []
        self._at_end: list[Listener] = []

    @property
    def error(self) -> BaseException | None:
        """The error that ended it, if one did."""
        return self._error

    def write(self, event: str | Progress) -> None:
        """Add an event. Readers learn of text when the step has ended, of progress at once."""
        with self._lock:
            self.events.append(event)
            listeners, self._listeners = self._listeners, []
        if listeners:
            self._call(listeners, at_once=not isinstance(event, str))

    def finish(self, result: T) -> None:
        """End with a result, which readers do not see yet."""
        self._end(result, None)

    def fail(self, error: BaseException) -> None:
        """End with an error, unless it has ended already; publish the end."""
        self._end(None, error)
        self.publish()

    def publish(self) -> None:
        """Let readers see the end."""
        with self._lock:
            self.is_published = True
            listeners, self._listeners = [*self._listeners, *self._at_end], []
            self._at_end = []
        self._call(listeners)

    def result(self, timeout: float | None = None) -> T:
        """Wait for the end: the result, or the error raised."""
        if not self._wait(self.call_at_end, timeout):
            raise TimeoutError(f"the request has not ended after {timeout} s")
        if self._error is not None:
            raise self._error
        assert self._result is not None, "it ended well"
        return self._result

    def wait_beyond(self, count: int) -> None:
        """Wait until there are more than `count` events, or the end."""
        self._wait(lambda listener: self.call_beyond(count, listener))

    def call_beyond(self, count: int, listener: Listener) -> None:
        """Call back once when there are more than `count` events, or the end; perhaps now."""
        if len(self.events) <= count and not self.is_published:
            self.check()
            with self._lock:
                if len(self.events) <= count and not self.is_published:
                    self._listeners.append(listener)
                    return
        listener()

    def call_at_end(self, listener: Listener) -> None:
        """Call back once at the end; perhaps now."""
        if not self.is_published:
            self.check()
            with self._lock:
                if not self.is_published:
                    self._at_end.append(listener)
                    return
        listener()

    def check(self) -> None:
        """Raise an error if nothing more can come, and cancel the request."""
        try:
            self.watch()
        except IngotError:
            self.wish.cancelled = True
            raise

    def _wait(self, register: Callable[[Listener], None], timeout: float | None = None) -> bool:
        """Wait for a listener to be called back; False after the timeout."""
        called = threading.Lock()
        called.acquire()
        register(called.release)
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > WATCH_SECONDS:
            if called.acquire(timeout=WATCH_SECONDS):
                return True
            self.check()
        return called.acquire(timeout=max(left, 0))

    def _call(self, listeners: list[Listener], *, at_once: bool = False) -> None:
        if self.outbox is not None and not at_once:
            self.outbox.add(listeners)
            return
        for listener in listeners:
            listener()

    def _end(self, result: T | None, error: BaseException | None) -> None:
        if not self.is_ended:
            self._result, self._error = result, error
            self.is_ended = True


def _nothing() -> None:
    pass
