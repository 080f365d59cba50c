"""One step: the scheduler picks tokens, the model runs, the samplers pick, the texts grow.

What goes wrong in one task ends that task; what goes wrong in the model ends those that ran.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ingot.backends.batch import ExecutionPhase
from ingot.engine.loaded import LoadedModel
from ingot.engine.other_tasks import BeamTask, KeepTask, RowsTask
from ingot.engine.scheduler import GENERATION, PROMPT, Plan, Scheduler, Share
from ingot.engine.text_task import TextTask
from ingot.errors import IngotError
from ingot.sampling import choose

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

R = TypeVar("R")
Logits = NDArray[np.float32]
Task: TypeAlias = TextTask | RowsTask | KeepTask | BeamTask


class Stepper:
    """Brings the tasks of a scheduler further, step by step."""

    def __init__(
        self, model: LoadedModel, scheduler: Scheduler[Task], helper: "Callable[[], Executor]"
    ) -> None:
        """`helper` gives a thread in which masks are made while the model runs."""
        self._model = model
        self._scheduler = scheduler
        self._helper = helper
        self.steps = self.prompt_tokens = self.generated_tokens = 0

    def step(self) -> None:
        """Bring every task that runs one step further."""
        plan = self._scheduler.plan()
        masks = self._begin(plan)
        logits = [self._run(GENERATION, plan.generation), self._run(PROMPT, plan.prompt)]
        ready = self._ready(plan, masks)
        self._choose(ready, logits)
        self._scheduler.settle(plan)
        self.steps += 1

    def _begin(self, plan: Plan[Task]) -> "list[tuple[TextTask, Future[None]]]":
        """Tell the tasks; let the masks of grammars be made."""
        for task, error in plan.failed:
            task.fail(error)
        for share in plan.shares():
            if isinstance(share.task, TextTask):
                share.task.begin_step()
        return [
            (task, self._helper().submit(task.transcript.chain.prepare))
            for task in _tasks(plan)
            if isinstance(task, TextTask) and task.has_masks
        ]

    def _run(self, phase: ExecutionPhase, shares: Sequence[Share[Task]]) -> Logits | None:
        """Run the tokens of a phase and hand the rows of logits out."""
        if not shares:
            return None
        first = np.cumsum([0, *(share.count for share in shares)])
        wanted = [
            first[i] + np.arange(share.wanted.start, share.wanted.stop)
            for i, share in enumerate(shares)
        ]
        try:
            logits = self._model.forward(
                [share.strand.blocks for share in shares],
                [share.strand.tokens[share.start : share.end] for share in shares],
                np.concatenate(wanted).astype(np.int32),
                phase,
            )
        except Exception as error:  # whatever it is, it is these tasks'
            for share in shares:
                self._fail(share.task, error)
            return None
        if phase is PROMPT:
            self.prompt_tokens += int(first[-1])
        row = 0
        for share, rows in zip(shares, wanted, strict=True):
            if len(rows):
                start = share.start + share.wanted.start
                piece = logits[row : row + len(rows)]
                self._guarded(share.task, share.task.receive, share.strand, start, piece)
            row += len(rows)
        return logits

    def _ready(
        self, plan: Plan[Task], masks: "list[tuple[TextTask, Future[None]]]"
    ) -> list[TextTask]:
        """Those of the texts that can go on; other tasks do so here."""
        for text, made in masks:
            self._guarded(text, made.result)
        texts = []
        for task in _tasks(plan):
            if isinstance(task, TextTask):
                task.end_step()
            if task.channel.is_ended or any(strand.pending for strand in task.strands):
                continue
            if isinstance(task, TextTask):
                texts.append(task)
            else:
                self._guarded(task, task.advance)
        return texts

    def _choose(self, texts: Sequence[TextTask], logits: Sequence[Logits | None]) -> None:
        """Choose the next token of every text, all together, and add it."""
        rows = [(text, self._guarded(text, text.first_row)) for text in texts]
        found = [(text, row) for text, row in rows if row is not None]
        if not found:
            return
        together = _together([row for _, row in found], logits)
        choosing = [text.transcript.choosing for text, _ in found]
        for (text, _), choice in zip(
            found, choose(choosing, together, self._model.threads), strict=True
        ):
            if isinstance(choice, IngotError):
                self._fail(text, choice)
            else:
                before = len(text.transcript.choices)
                self._guarded(text, text.take, choice)
                self.generated_tokens += len(text.transcript.choices) - before

    def _guarded(self, task: Task, call: Callable[..., R], *arguments: Any) -> R | None:
        """Call something of a task's; its error is the task's end."""
        try:
            return call(*arguments)
        except Exception as error:  # a caller's function may raise anything
            self._fail(task, error)
            return None

    def _fail(self, task: Task, error: Exception) -> None:
        """End a task; what the step left of it in the cache is nothing to go by."""
        self._scheduler.remove(task)
        # Its traceback would keep this step's logits for as long as somebody has the error.
        task.fail(error.with_traceback(None) if isinstance(error, IngotError) else error)


def _tasks(plan: Plan[Task]) -> list[Task]:
    return list(dict.fromkeys(share.task for share in plan.shares()))


def _together(rows: Sequence[Logits], logits: Sequence[Logits | None]) -> Logits:
    """Single rows as one array: that of a step's logits, if they are all of it in order."""
    for whole in logits:
        if (
            whole is not None
            and len(whole) == len(rows)
            and all(row.ctypes.data == whole[i].ctypes.data for i, row in enumerate(rows))
        ):
            return whole
    return np.concatenate(rows)
