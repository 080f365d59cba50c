"""Channel: what a request has produced so far, between the step thread and whoever reads it.

The step thread writes pieces, progress and the end. Readers are threads that wait, or tasks of
an event loop that are called back. Pieces stay: a late reader finds all of them.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
Listener = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Progress:
    """So many tokens of a prompt are read, of so many."""

    done: int
    total: int


class Wish:
    """What the reader wants; apart from the channel, so that it can outlive the reader."""

    __slots__ = ("cancelled",)

    def __init__(self) -> None:
        self.cancelled = False


class Channel(Generic[T]):
    """Events in order, and a result or an error at the end."""

    def __init__(self) -> None:
        self.events: list[str | Progress] = []
        self.wish = Wish()  # at which the step thread looks before every step
        self._changed = threading.Condition()
        self._ended = threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None
        self._listeners: list[Listener] = []
        self._at_end: list[Listener] = []

    @property
    def is_ended(self) -> bool:
        """Whether nothing more will come."""
        return self._ended.is_set()

    @property
    def error(self) -> BaseException | None:
        """What ended it, if that was an error."""
        return self._error

    def write(self, event: str | Progress) -> None:
        """Add an event."""
        with self._changed:
            self.events.append(event)
            self._tell()

    def finish(self, result: T) -> None:
        """Come to a good end."""
        self._end(result, None)

    def fail(self, error: BaseException) -> None:
        """Come to another one."""
        self._end(None, error)

    def result(self, timeout: float | None = None) -> T:
        """Wait for the end: the result, or the error raised."""
        if not self._ended.wait(timeout):
            raise TimeoutError(f"the request has not ended after {timeout} s")
        if self._error is not None:
            raise self._error
        assert self._result is not None, "it ended well"
        return self._result

    def wait_beyond(self, count: int) -> None:
        """Wait until there are more than `count` events, or the end."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.events) > count or self.is_ended)

    def call_beyond(self, count: int, listener: Listener) -> None:
        """Call back once when there are more than `count` events, or the end; perhaps now."""
        with self._changed:
            if len(self.events) <= count and not self.is_ended:
                self._listeners.append(listener)
                return
        listener()

    def call_at_end(self, listener: Listener) -> None:
        """Call back once at the end; perhaps now."""
        with self._changed:
            if not self.is_ended:
                self._at_end.append(listener)
                return
        listener()

    def _end(self, result: T | None, error: BaseException | None) -> None:
        with self._changed:
            if self.is_ended:
                return
            self._result, self._error = result, error
            self._ended.set()
            self._listeners += self._at_end
            self._at_end = []
            self._tell()

    def _tell(self) -> None:
        self._changed.notify_all()
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()
