"""StepLoop: the thread that owns a model and runs its steps, and the inbox of that thread.

Tasks and calls come in from any thread; the thread runs while one of them has something to do
and sleeps otherwise. It does not know what texts are.
"""

import threading
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeVar

from ingot.engine.channel import Channel
from ingot.engine.loaded import LoadedModel
from ingot.engine.running import Task
from ingot.engine.scheduler import Limits, Scheduler
from ingot.engine.step import Stepper
from ingot.engine.text_task import TextTask
from ingot.errors import ModelError, QueueFullError, RequestCancelledError

if TYPE_CHECKING:
    from concurrent.futures import Executor

R = TypeVar("R")


class StepLoop:
    """Runs tasks on a model in a thread of its own, which starts with the first of them."""

    def __init__(self, model: LoadedModel, limits: Limits) -> None:
        self.scheduler: Scheduler[Task] = Scheduler(model.cache, limits)
        self.stepper = Stepper(model, self.scheduler, self._helper_thread)
        self._model = model
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._state = threading.Lock()  # of the next three
        self._arriving = 0  # tasks in the inbox
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._helper: Executor | None = None

    def submit(self, task: Task) -> None:
        """Let a task be run; where too many wait already, it is refused."""
        if threading.current_thread() is self._thread:
            raise ModelError(
                "a logits processor runs in the thread that writes all texts, and cannot wait for "
                "another one there"
            )
        with self._state:
            waiting = len(self.scheduler.waiting) + self._arriving
            if waiting >= self.scheduler.limits.queue:
                raise QueueFullError(
                    f"{waiting} requests are waiting, which is the limit; try again later"
                )
            self._arriving += 1
        self._put(partial(self._arrive, task))

    def call(self, function: Callable[[], R]) -> R:
        """Run something between two steps, in the thread that owns the model."""
        if threading.current_thread() is self._thread:
            return function()
        done: Channel[tuple[R]] = Channel()

        def run() -> None:
            self._go_on(self.stepper.land)
            try:
                done.finish((function(),))
                done.publish()
            except Exception as error:  # it is the caller's
                done.fail(error)

        self._put(run)
        return done.result()[0]

    def wake(self) -> None:
        """Look at the tasks again: one was cancelled."""
        self._inbox.put(_nothing)

    def stop(self) -> None:
        """End all tasks after the step that runs, then the thread, and close the model."""
        with self._state:
            if self._stopped:
                return
            self._stopped = True
            thread = self._thread
        self.wake()
        if thread is None:
            self._close()
        elif thread is not threading.current_thread():
            thread.join()

    def _put(self, message: Callable[[], None]) -> None:
        with self._state:
            if self._stopped:
                raise self._closed()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ingot", daemon=True)
                self._thread.start()
            self._inbox.put(message)

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
                    self._go_on(self.stepper.step)
                self._remove_ended()
        finally:
            self._close()

    def _read_inbox(self) -> None:
        """Take all messages; wait for one if there is nothing else to do."""
        idle = not (self.scheduler.running or self.scheduler.waiting)
        try:
            while True:
                self._inbox.get(block=idle)()
                idle = False
        except Empty:
            return

    def _end_unwanted(self) -> None:
        for task in (*self.scheduler.running, *self.scheduler.waiting):
            if task.channel.wish.cancelled:
                self.scheduler.remove(task)
                task.fail(RequestCancelledError("the request was cancelled"))
            elif isinstance(task, TextTask):
                task.expire()
        self._remove_ended()

    def _go_on(self, move: Callable[[], None]) -> None:
        """Do something that brings tasks further."""
        try:
            move()
        except Exception as error:  # the tasks must not wait for ever
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
        self._go_on(self.stepper.land)
        while not self._inbox.empty():
            self._inbox.get()()  # calls find the model closed, tasks are failed below
        for task in (*self.scheduler.running, *self.scheduler.waiting):
            self.scheduler.remove(task)
            task.fail(self._closed())
        if self._helper is not None:
            self._helper.shutdown()
        self._model.close()

    def _closed(self) -> ModelError:
        return ModelError(f"{self._model.file.path} is closed; open it again to go on")

    def _helper_thread(self) -> "Executor":
        if self._helper is None:
            from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 (imports logging)

            self._helper = ThreadPoolExecutor(1, "ingot-masks")
        return self._helper


def _nothing() -> None:
    pass
