"""StepLoop: the thread that owns a model and runs its steps, and the inbox of that thread.

Tasks and calls come in from any thread; the step thread sleeps when there are none. It does not
know what tasks do.

If the thread ends with an error, all tasks fail with it and new ones are refused, because it may
have left things half done. After a fork the child has no such thread, and perhaps locks that nobody
will release: therefore each method looks at `health` first.
"""

import threading
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeVar

from ingot.arrays import Floats
from ingot.engine.channel import Channel
from ingot.engine.chunk_sizes import ChunkSizes
from ingot.engine.health import Health
from ingot.engine.model.loaded_model import LoadedModel
from ingot.engine.scheduler import Limits, Scheduler
from ingot.engine.speculation import AutoSpeculation
from ingot.engine.stats import Counters
from ingot.engine.step import Stepper
from ingot.engine.task import Task
from ingot.engine.wakeups import Outbox
from ingot.errors import (
    IngotError,
    ModelError,
    QueueFullError,
    RequestCancelledError,
    ThreadLimitError,
)

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

R = TypeVar("R")
_LOOK_SECONDS = 1.0  # between two looks at the health of a thread that should end


class StepLoop:
    """Runs tasks on a model in a thread that starts with the first of them."""

    def __init__(
        self,
        model: LoadedModel,
        limits: Limits,
        step_timeout: float | None = None,
        auto: AutoSpeculation | None = None,
        hidden_states: Callable[[int], Floats] | None = None,
        chunks: ChunkSizes | None = None,
    ) -> None:
        self.health = Health(str(model.file.path), step_timeout)
        self.scheduler: Scheduler = Scheduler(model.cache, limits, chunks)
        self.counters = Counters()
        self.background = Background()
        self.stepper = Stepper(model, self.scheduler, self.counters, auto, hidden_states)
        self._model = model
        self._outbox = Outbox()
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._state = threading.Lock()  # guards the next three
        self._arriving = 0  # tasks in the inbox
        self._thread: threading.Thread | None = None
        self._stopped = False

    def submit(self, task: Task) -> None:
        """Have a task run; QueueFullError if too many wait already."""
        self.health.check()
        if threading.current_thread() is self._thread:
            raise ModelError(
                "a logits processor runs in the step thread and cannot wait for another request "
                "there"
            )
        task.channel.watch = self.health.check
        task.channel.outbox = self._outbox
        with self._state:
            self._start()
            waiting = len(self.scheduler.waiting) + self._arriving
            if waiting >= self.scheduler.limits.queue:
                raise QueueFullError(
                    f"{waiting} requests are waiting, which is the limit; try again later"
                )
            self._arriving += 1
            self._inbox.put(partial(self._arrive, task))

    def check(self) -> None:
        """Raise an error if no task can be run."""
        self.health.check()
        if self._stopped:
            raise self._why_closed()

    def call(self, function: Callable[[], R]) -> R:
        """Run a function between two steps, in the step thread."""
        self.health.check()
        if threading.current_thread() is self._thread:
            return function()
        done: Channel[tuple[R]] = Channel()
        done.watch = self.health.check

        def run() -> None:
            self._run_step(self.stepper.land)
            try:
                done.finish((function(),))
                done.publish()
            except BaseException as error:  # for the caller
                done.fail(error)

        with self._state:
            self._start()
            self._inbox.put(run)
        return done.result()[0]

    def wake(self) -> None:
        """Have the tasks looked at again, because one was cancelled."""
        if self.health.home.is_here:
            self._inbox.put(_nothing)

    def stop(self) -> None:
        """End all tasks after the running step, then the thread, and close the model.

        If the step hangs, raise an error; the thread stops if the step ends after all.
        """
        if not self.health.home.is_here:
            return
        with self._state:
            is_first = not self._stopped
            self._stopped = True
            thread = self._thread
        self.wake()
        if thread is None:
            if is_first:
                self._close()
        elif thread is not threading.current_thread():
            thread.join(_LOOK_SECONDS)
            while thread.is_alive():
                if self.health.failure is None:
                    self.health.check()
                thread.join(_LOOK_SECONDS)

    def _start(self) -> None:
        """Start the thread if it does not run; raise an error if it cannot."""
        if self._stopped:
            raise self._why_closed()
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name="ingot", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise ThreadLimitError(
                f"the thread that runs the model cannot be started ({error}): end other threads "
                "or processes, or raise the limit (ulimit -u, or pids of the container)"
            ) from None
        self._thread = thread

    def _arrive(self, task: Task) -> None:
        with self._state:
            self._arriving -= 1
        self.scheduler.add(task)

    def _run(self) -> None:
        try:
            while not self._stopped:
                self._read_inbox()
                self._end_unwanted()
                if self.scheduler.running or self.scheduler.waiting:
                    self.health.begin_step()
                    self._run_step(self.stepper.step)
                self._remove_ended()
                self._outbox.send()
        except BaseException as error:  # requests that wait must learn of it
            self.health.fail(error)
        finally:
            self._close()

    def _read_inbox(self) -> None:
        """Take all messages; wait for one if there is nothing else to do."""
        idle = not (self.scheduler.running or self.scheduler.waiting)
        if idle:
            self.health.rest()
        try:
            while True:
                message = self._inbox.get(block=idle)
                idle = False
                self.health.begin_step()
                message()
        except Empty:
            return

    def _end_unwanted(self) -> None:
        for task in (*self.scheduler.running, *self.scheduler.waiting):
            if task.channel.wish.cancelled:
                self.scheduler.remove(task)
                task.fail(RequestCancelledError("the request was cancelled"))
            else:
                task.expire()
        self._remove_ended()

    def _run_step(self, move: Callable[[], None]) -> None:
        """Run a step; an error that is not a single task's ends all of them."""
        try:
            move()
        except BaseException as error:  # the tasks must not wait forever
            for task in list(self.scheduler.running):
                self.scheduler.remove(task)
                task.fail(error)

    def _remove_ended(self) -> None:
        for task in (*self.scheduler.running, *self.scheduler.waiting):
            if task.channel.is_ended:
                self.scheduler.remove(task)
                task.channel.publish()
        if not self.scheduler.running:  # nothing else would finish it
            self._run_step(self.stepper.land)

    def _close(self) -> None:
        """Fail the tasks that are left; free everything."""
        with self._state:
            self._stopped = True
        self._run_step(self.stepper.land)
        while not self._inbox.empty():
            self._inbox.get()()  # calls find the model closed, tasks are failed below
        for task in (*self.scheduler.running, *self.scheduler.waiting):
            self.scheduler.remove(task)
            task.fail(self._why_closed())
        self._outbox.send()
        self.background.close()
        self._model.close()
        self.health.rest()

    def _why_closed(self) -> IngotError:
        return self.health.failure or ModelError(
            f"{self._model.file.path} is closed; open it again"
        )


class Background:
    """A thread for work that can be done while the model runs. It starts with the first work."""

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


def _nothing() -> None:
    pass
