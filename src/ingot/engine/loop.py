"""StepLoop: the thread that owns a model and runs its steps, and the inbox of that thread.

Tasks and calls come in from any thread; the thread runs while one of them has something to do
and sleeps otherwise. It does not know what texts are.

If the thread ends with an error, everything that waits fails with it and nothing new is taken: what
the thread left half done is not gone on with. A process that has the loop from a fork has no such
thread, and perhaps locks that nobody will release: there each method looks at `health` first.
"""

import threading
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

from ingot.engine.background import Background
from ingot.engine.channel import Channel
from ingot.engine.health import Health
from ingot.engine.loaded import LoadedModel
from ingot.engine.scheduler import Limits, Scheduler
from ingot.engine.stats import Counters
from ingot.engine.step import Stepper
from ingot.engine.task import Task
from ingot.errors import (
    IngotError,
    ModelError,
    QueueFullError,
    RequestCancelledError,
    ThreadLimitError,
)

R = TypeVar("R")
_LOOK_SECONDS = 1.0  # after which whoever waits for the end of the thread looks at its health


class StepLoop:
    """Runs tasks on a model in a thread of its own, which starts with the first of them."""

    def __init__(
        self, model: LoadedModel, limits: Limits, step_timeout: float | None = None
    ) -> None:
        self.health = Health(str(model.file.path), step_timeout)
        self.scheduler: Scheduler = Scheduler(model.cache, limits)
        self.counters = Counters()
        self.background = Background()
        self.stepper = Stepper(model, self.scheduler, self.counters)
        self._model = model
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._state = threading.Lock()  # of the next three
        self._arriving = 0  # tasks in the inbox
        self._thread: threading.Thread | None = None
        self._stopped = False

    def submit(self, task: Task) -> None:
        """Let a task be run; if too many wait already, it is refused."""
        self.health.check()
        if threading.current_thread() is self._thread:
            raise ModelError(
                "a logits processor runs in the thread that writes all texts, and cannot wait for "
                "another one there"
            )
        task.channel.watch = self.health.check
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
        """Raise an error if no task could be run."""
        self.health.check()
        if self._stopped:
            raise self._why_closed()

    def call(self, function: Callable[[], R]) -> R:
        """Run something between two steps, in the thread that owns the model."""
        self.health.check()
        if threading.current_thread() is self._thread:
            return function()
        done: Channel[tuple[R]] = Channel()
        done.watch = self.health.check

        def run() -> None:
            self._go_on(self.stepper.land)
            try:
                done.finish((function(),))
                done.publish()
            except BaseException as error:  # it is the caller's
                done.fail(error)

        with self._state:
            self._start()
            self._inbox.put(run)
        return done.result()[0]

    def wake(self) -> None:
        """Look at the tasks again: one was cancelled."""
        if self.health.home.is_here:
            self._inbox.put(_nothing)

    def stop(self) -> None:
        """End all tasks after the step that runs, then the thread, and close the model.

        Of a step that does not end there is an error; the thread stops if it ends after all.
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
        """See that the thread runs, or say why it cannot."""
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
        self.scheduler.waiting.append(task)

    def _run(self) -> None:
        try:
            while not self._stopped:
                self._read_inbox()
                self._end_unwanted()
                if self.scheduler.running or self.scheduler.waiting:
                    self.health.begin_step()
                    self._go_on(self.stepper.step)
                self._remove_ended()
        except BaseException as error:  # from here on nobody else would tell those who wait
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

    def _go_on(self, move: Callable[[], None]) -> None:
        """Do something that brings tasks further."""
        try:
            move()
        except BaseException as error:  # the tasks must not wait for ever
            for task in list(self.scheduler.running):
                self.scheduler.remove(task)
                task.fail(error)

    def _remove_ended(self) -> None:
        for task in (*self.scheduler.running, *self.scheduler.waiting):
            if task.channel.is_ended:
                self.scheduler.remove(task)
                task.channel.publish()
        if not self.scheduler.running:  # nobody is there to see what else would come
            self._go_on(self.stepper.land)

    def _close(self) -> None:
        """Fail what is left; free everything."""
        with self._state:
            self._stopped = True
        self._go_on(self.stepper.land)
        while not self._inbox.empty():
            self._inbox.get()()  # calls find the model closed, tasks are failed below
        for task in (*self.scheduler.running, *self.scheduler.waiting):
            self.scheduler.remove(task)
            task.fail(self._why_closed())
        self.background.close()
        self._model.close()
        self.health.rest()

    def _why_closed(self) -> IngotError:
        return self.health.failure or ModelError(
            f"{self._model.file.path} is closed; open it again to go on"
        )


def _nothing() -> None:
    pass
