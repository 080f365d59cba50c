"""Background: one thread for work that can be done while the model runs, such as token masks."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future


class Background:
    """Starts its thread with the first piece of work. Used by one thread."""

    def __init__(self) -> None:
        self._executor: Executor | None = None

    def submit(self, work: Callable[[], None]) -> "Future[None]":
        """Have something done; if no thread can be started, do it now."""
        from concurrent.futures import Future, ThreadPoolExecutor  # noqa: PLC0415 (imports logging)

        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, "ingot-masks")
        try:
            return self._executor.submit(work)
        except RuntimeError:
            self._executor = None  # the work is in its queue, and must not be done twice
        done: Future[None] = Future()
        try:
            work()
            done.set_result(None)
        except Exception as error:
            done.set_exception(error)
        return done

    def close(self) -> None:
        """Wait for the work that is under way and end the thread."""
        if self._executor is not None:
            self._executor.shutdown()
