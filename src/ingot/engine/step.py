"""One step of all tasks: plan, run, sample, take, settle.

The scheduler picks tokens, the model runs them (runner.py), one call samples the next tokens of all
texts, the tasks continue with them, and the KV cache files what was computed.

An error in a task ends that task; an error in the model ends the tasks that ran.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from ingot.arrays import Floats, Logits
from ingot.engine.model.loaded_model import LoadedModel
from ingot.engine.runner import Outcomes, Runner
from ingot.engine.scheduler import Scheduler
from ingot.engine.speculation import AutoSpeculation
from ingot.engine.stats import Counters
from ingot.engine.task import Task, TokenWanted, joined
from ingot.errors import IngotError
from ingot.sampling import SampledToken, sample_tokens

A = TypeVar("A")
R = TypeVar("R")


class Stepper:
    """Runs the tasks of a scheduler, step by step."""

    def __init__(
        self,
        model: LoadedModel,
        scheduler: Scheduler,
        counters: Counters,
        auto: AutoSpeculation | None = None,
        hidden_states: Callable[[int], Floats] | None = None,
    ) -> None:
        """`auto` is told what the steps cost; `hidden_states` as in `Runner`."""
        self._scheduler = scheduler
        self._counters = counters
        self._threads = model.threads
        self._auto = auto
        self._runner = Runner(model, scheduler, counters, self._fail, hidden_states)

    def step(self, *, ahead: bool = True) -> None:
        """Run one step; with `ahead`, the next one may start before this one's tokens are seen."""
        started, was_ahead = time.perf_counter(), self._runner.is_ahead
        plan = self._runner.plan()
        if self._auto:
            columns = sum(share.count for share in plan.generation)
            self._auto.begin(len(plan.generation), columns, ahead=was_ahead)
        for outcomes in self._runner.run(plan, ahead=ahead):
            self._take(self._sample(outcomes))
        self._scheduler.settle(plan)
        self._counters.steps += 1
        if self._auto:
            self._auto.end(None if plan.prompt else time.perf_counter() - started)

    def land(self) -> None:
        """Finish the step that runs ahead, if there is one; then the model is idle."""
        if self._runner.is_ahead:
            self.step(ahead=False)

    def _sample(self, outcomes: Outcomes) -> Iterator[tuple[Task, SampledToken]]:
        """The next token of every task that wants one, sampled together."""
        asking: list[tuple[Task, TokenWanted]] = []
        for task, outcome in outcomes.tasks.items():
            wanted = self._guarded(task, task.receive, outcome)
            if isinstance(wanted, SampledToken):
                yield task, wanted
            elif wanted is not None:
                asking.append((task, wanted))
        if not asking:
            return
        logits = _together([wanted.row for _, wanted in asking], outcomes.logits)
        tokens = sample_tokens([wanted.sampler for _, wanted in asking], logits, self._threads)
        for (task, _), token in zip(asking, tokens, strict=True):
            if isinstance(token, IngotError):
                self._fail(task, token)
            else:
                yield task, token

    def _take(self, tokens: Iterator[tuple[Task, SampledToken]]) -> None:
        for task, token in tokens:
            self._guarded(task, task.take, token)

    def _guarded(self, task: Task, method: Callable[[A], R], argument: A) -> R | None:
        """Call a method of a task; an error ends the task."""
        try:
            return method(argument)
        except BaseException as error:  # a caller's function may raise anything
            self._fail(task, error)
            return None

    def _fail(self, task: Task, error: BaseException) -> None:
        """End a task; what the step left of it in the cache cannot be trusted."""
        self._scheduler.remove(task)
        # A traceback would keep this step's logits alive as long as the error.
        task.fail(error.with_traceback(None) if isinstance(error, IngotError) else error)


def _together(rows: Sequence[Logits], logits: Sequence[Logits]) -> Logits:
    """Single rows as one array: an array of the step's logits, if they are all of it in order."""
    for whole in logits:
        if len(whole) == len(rows) and all(
            row.ctypes.data == whole[i].ctypes.data for i, row in enumerate(rows)
        ):
            return whole
    return joined(rows)
