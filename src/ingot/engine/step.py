"""One step: the scheduler picks tokens, the model runs, the samplers pick, the texts grow.

Where the backend chooses all tokens by itself, it runs the next step while this one's are looked at
(running.py).

What goes wrong in one task ends that task; what goes wrong in the model ends those that ran.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ingot.backends.batch import ExecutionPhase
from ingot.backends.device_sampler import SamplingPlan
from ingot.engine.gaps import Gaps
from ingot.engine.loaded import LoadedModel
from ingot.engine.running import Following, Part, Running, Task
from ingot.engine.scheduler import GENERATION, PROMPT, Plan, Scheduler, Share
from ingot.engine.text_task import TextTask
from ingot.errors import IngotError
from ingot.sampling import SampledToken, sample_tokens

if TYPE_CHECKING:
    from concurrent.futures import Future

R = TypeVar("R")
Logits = NDArray[np.float32]
Ints = NDArray[np.int32]


class Stepper:
    """Brings the tasks of a scheduler further, step by step."""

    def __init__(
        self,
        model: LoadedModel,
        scheduler: Scheduler[Task],
        do_beside: "Callable[[Callable[[], None]], Future[None]]",
    ) -> None:
        """`do_beside` has masks made while the model runs."""
        self._model = model
        self._scheduler = scheduler
        self._do_beside = do_beside
        self.steps = self.prompt_tokens = self.generated_tokens = 0
        self.gaps = Gaps()
        self._ahead: Running | None = None  # the step that runs while the last one is looked at

    def step(self) -> None:
        """Bring every task that runs one step further."""
        running = self._ahead or self._start(self._scheduler.plan())
        self._ahead = self._follow(running)
        self._finish(running)

    def land(self) -> None:
        """Finish the step that runs ahead, if one does: then the model is at rest."""
        running, self._ahead = self._ahead, None
        if running:
            self._finish(running)

    def _start(self, plan: Plan[Task]) -> Running:
        masks = self._begin(plan)
        parts = [self._run(GENERATION, plan.generation), self._run(PROMPT, plan.prompt)]
        return Running(plan, masks, [part for part in parts if part is not None])

    def _follow(self, running: Running) -> Running | None:
        """Start the step after one that runs, if it is certain what that will be."""
        device_sampler = self._model.device_sampler
        if device_sampler is None or not self._scheduler.is_steady:
            return None
        following = Following.after(running, len(self._scheduler.running), device_sampler)
        if following is None:
            return None
        ids = [np.array([-1 - row], np.int32) for row in following.rows]
        outputs = np.arange(len(ids), dtype=np.int32)
        part = self._launch(GENERATION, following.shares, ids, outputs, following.choices)
        return Running(Plan(following.shares), (), [part] if part else [], is_ahead=True)

    def _finish(self, running: Running) -> None:
        if running.is_ahead:
            for share in running.plan.generation:
                share.strand.catch_up()
        logits = [self._hand_out(part) for part in running.parts]
        ready = self._ready(running.plan, running.masks)
        self._choose(ready, logits)
        self._scheduler.settle(running.plan)
        self.steps += 1

    def _begin(self, plan: Plan[Task]) -> "list[tuple[TextTask, Future[None]]]":
        """Tell the tasks; let the masks of grammars be made."""
        for task, error in plan.failed:
            task.fail(error)
        for share in plan.shares():
            if isinstance(share.task, TextTask):
                share.task.begin_step()
        return [
            (task, self._do_beside(task.transcript.chain.prepare))
            for task in _tasks(plan)
            if isinstance(task, TextTask) and task.has_masks
        ]

    def _run(self, phase: ExecutionPhase, shares: Sequence[Share[Task]]) -> Part | None:
        """Run the tokens of a phase."""
        if not shares:
            return None
        first = np.cumsum([0, *(share.count for share in shares)])
        wanted = [
            first[i] + np.arange(share.wanted.start, share.wanted.stop)
            for i, share in enumerate(shares)
        ]
        ids = [share.strand.tokens[share.start : share.end] for share in shares]
        outputs = np.concatenate(wanted).astype(np.int32)
        part = self._launch(phase, shares, ids, outputs, self._choices(phase, shares))
        if part and phase is PROMPT:
            self.prompt_tokens += int(first[-1])
        return part

    def _launch(
        self,
        phase: ExecutionPhase,
        shares: Sequence[Share[Task]],
        ids: Sequence[Ints],
        outputs: Ints,
        choices: Sequence[SamplingPlan | None],
    ) -> Part | None:
        try:
            blocks = [share.strand.blocks for share in shares]
            started = self._model.start(blocks, ids, outputs, phase, choices)
        except Exception as error:  # whatever it is, it is these tasks'
            self._fail_all(shares, error)
            return None
        return Part(shares, choices, started)

    def _choices(
        self, phase: ExecutionPhase, shares: Sequence[Share[Task]]
    ) -> Sequence[SamplingPlan | None]:
        """What the backend can choose by itself, if every sequence has one token to run."""
        device_sampler = self._model.device_sampler
        single = all(share.count == len(share.wanted) == 1 for share in shares)
        if device_sampler is None or phase is PROMPT or not single:
            return [None] * len(shares)
        tasks = [share.task for share in shares]
        choices = [task.sampling_plan() if isinstance(task, TextTask) else None for task in tasks]
        return [choice if choice and device_sampler.accepts(choice) else None for choice in choices]

    def _hand_out(self, part: Part) -> Logits:
        """Wait for a part of the step; give tasks their tokens, or their rows of logits."""
        try:
            found = part.started.result()
        except Exception as error:  # as above
            self._fail_all(part.shares, error)
            return np.empty((0, 0), np.float32)
        row = 0
        for index, (share, choice) in enumerate(zip(part.shares, part.choices, strict=True)):
            if choice is not None:
                if isinstance(share.task, TextTask):  # others choose nothing
                    share.task.receive_token(int(found.tokens[index]))
            elif count := len(share.wanted):
                start = share.start + share.wanted.start
                piece = found.logits[row : row + count]
                self._guarded(share.task, share.task.receive, share.strand, start, piece)
                row += count
        return found.logits

    def _ready(
        self, plan: Plan[Task], masks: "Sequence[tuple[TextTask, Future[None]]]"
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

    def _choose(self, texts: Sequence[TextTask], logits: Sequence[Logits]) -> None:
        """Choose the next token of every text, all together, and add it."""
        rows: list[tuple[TextTask, Logits]] = []
        for text in texts:
            first = self._guarded(text, text.first_row)
            if isinstance(first, SampledToken):
                self._take(text, first)
            elif first is not None:
                rows.append((text, first))
        if not rows:
            return
        together = _together([row for _, row in rows], logits)
        choosing = [text.transcript.sampler for text, _ in rows]
        for (text, _), choice in zip(
            rows, sample_tokens(choosing, together, self._model.threads), strict=True
        ):
            if isinstance(choice, IngotError):
                self._fail(text, choice)
            else:
                self._take(text, choice)

    def _take(self, text: TextTask, choice: SampledToken) -> None:
        before = len(text.transcript.sampled)
        self._guarded(text, text.take, choice)
        self.generated_tokens += len(text.transcript.sampled) - before
        if text.gap is not None:
            self.gaps.add(text.gap)

    def _guarded(self, task: Task, call: Callable[..., R], *arguments: Any) -> R | None:
        """Call something of a task's; its error is the task's end."""
        try:
            return call(*arguments)
        except BaseException as error:  # a caller's function may raise anything
            self._fail(task, error)
            return None

    def _fail_all(self, shares: Sequence[Share[Task]], error: Exception) -> None:
        for share in shares:
            self._fail(share.task, error)

    def _fail(self, task: Task, error: BaseException) -> None:
        """End a task; what the step left of it in the cache is nothing to go by."""
        self._scheduler.remove(task)
        # Its traceback would keep this step's logits for as long as somebody has the error.
        task.fail(error.with_traceback(None) if isinstance(error, IngotError) else error)


def _tasks(plan: Plan[Task]) -> list[Task]:
    return list(dict.fromkeys(share.task for share in plan.shares()))


def _together(rows: Sequence[Logits], logits: Sequence[Logits]) -> Logits:
    """Single rows as one array: that of a step's logits, if they are all of it in order."""
    for whole in logits:
        if len(whole) == len(rows) and all(
            row.ctypes.data == whole[i].ctypes.data for i, row in enumerate(rows)
        ):
            return whole
    return np.concatenate(rows)
