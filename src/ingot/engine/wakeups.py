"""How readers of channels are woken: threads one by one, tasks of an event loop together.

In: listeners, which the step thread calls back when their channels have news. Out: one message to
each event loop for all tokens of a step. A message for each token would cost more than the token.
It does not know what channels carry.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from ingot.errors import IngotError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future, TimerHandle

Listener = Callable[[], None]
WATCH_SECONDS = 1.0  # between two looks of a waiting reader at the step thread


class GroupListener(ABC):
    """A listener that is called back together with the others of its group."""

    __slots__ = ()

    @property
    @abstractmethod
    def group(self) -> object:
        """Listeners with the same group belong together."""

    @abstractmethod
    def call_all(self, listeners: "Sequence[Self]") -> None:
        """Call back listeners of this group."""

    def __call__(self) -> None:
        """Call back this listener alone."""
        self.call_all([self])


class LoopListener(GroupListener):
    """Ends the wait of a task in an event loop, from any thread."""

    __slots__ = ("future", "group")

    def __init__(self, loop: "AbstractEventLoop", future: "Future[None]") -> None:
        self.group: AbstractEventLoop = loop
        self.future = future

    def call_all(self, listeners: "Sequence[LoopListener]") -> None:
        """Send one message to the event loop."""
        futures = [listener.future for listener in listeners]
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self.group.call_soon_threadsafe(_end_waits, futures)


class Outbox:
    """Listeners to be called back when the step has ended. It belongs to the step thread."""

    def __init__(self) -> None:
        self._due: list[Listener] = []

    def add(self, listeners: Iterable[Listener]) -> None:
        """Call them back with the next `send`."""
        self._due.extend(listeners)

    def send(self) -> None:
        """Call all of them back."""
        if not self._due:
            return
        due, self._due = self._due, []
        groups: dict[object, list[GroupListener]] = {}
        for listener in due:
            if isinstance(listener, GroupListener):
                groups.setdefault(listener.group, []).append(listener)
            else:
                listener()
        for listeners in groups.values():
            listeners[0].call_all(listeners)


class LoopWaits:
    """The tasks of one event loop that wait for one channel."""

    def __init__(self, loop: "AbstractEventLoop", check: Callable[[], None]) -> None:
        """`check` raises an error if nothing more can come; it is called once a second."""
        self.loop = loop
        self._check = check
        self._waiting: set[Future[None]] = set()
        self._look_later: TimerHandle | None = None

    async def wait(self, register: Callable[[Listener], None]) -> None:
        """Wait until the listener that is registered is called back."""
        future: Future[None] = self.loop.create_future()
        self._waiting.add(future)
        try:
            register(LoopListener(self.loop, future))
            if self._look_later is None:
                self._look_later = self.loop.call_later(WATCH_SECONDS, self._look)
            await future
        finally:
            self._waiting.discard(future)

    def _look(self) -> None:
        """Check the step thread for all that wait. The next wait starts this again."""
        self._look_later = None
        if not self._waiting:
            return
        try:
            self._check()
        except IngotError as error:
            for future in self._waiting:
                if not future.done():
                    future.set_exception(error)
        else:
            self._look_later = self.loop.call_later(WATCH_SECONDS, self._look)


def _end_waits(futures: "list[Future[None]]") -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
