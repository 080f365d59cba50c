"""Runner: runs planned tokens on the model and collects what it found for each task.

A step has up to two parts: one token of each text in decode, and prompt chunks. A device runs them
one after the other, and the outcome of the first is handled while it is busy with the second.

If the device samples all tokens of a step, those after prompts, too, the runner starts the next
step before the host has seen them: its input tokens are those that the device is about to sample.
It does so only if nothing but the end of a text can come between. A text that turns out to have
ended has then run one token in vain; all others are where they would be anyway.

If the model fails, the tasks that ran fail.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ingot.arrays import Floats, Ints, Logits
from ingot.backends.batch import ExecutionPhase
from ingot.backends.device_sampler import DeviceSampler, SamplingPlan, Started
from ingot.engine.model.loaded_model import LoadedModel, build_batch
from ingot.engine.scheduler import GENERATION, PROMPT, Plan, Scheduler, Share
from ingot.engine.stats import Counters
from ingot.engine.task import Outcome, Rows, Task
from ingot.errors import CacheFullError

Shares = Sequence[Share]


@dataclass(frozen=True, slots=True)
class _Part:
    """The tokens of one phase, while the model runs them."""

    phase: ExecutionPhase
    shares: Shares
    sampling: Sequence[SamplingPlan | None]  # of each share, if the device samples
    started: Started


@dataclass(frozen=True, slots=True)
class _RunningStep:
    plan: Plan
    parts: Sequence[_Part]
    is_ahead: bool = False


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What a part of a step found: for each task that ran and did not fail, in order."""

    tasks: dict[Task, Outcome]
    logits: list[Logits]  # the arrays of which all rows are views


class Runner:
    """Runs the steps of a scheduler on a model."""

    def __init__(
        self,
        model: LoadedModel,
        scheduler: Scheduler,
        counters: Counters,
        fail: Callable[[Task, BaseException], None],
        hidden_states: Callable[[int], Floats] | None = None,
    ) -> None:
        """`hidden_states` tells those of the tokens that ran last, if something reads them."""
        self._model = model
        self._scheduler = scheduler
        self._counters = counters
        self._fail = fail
        self._hidden_states = hidden_states
        self._ahead: _RunningStep | None = None

    @property
    def is_ahead(self) -> bool:
        """Whether a step runs ahead, whose outcome is still to be looked at."""
        return self._ahead is not None

    def plan(self) -> Plan:
        """The next step: the one that runs ahead, or a new one."""
        return self._ahead.plan if self._ahead else self._scheduler.plan()

    def run(self, plan: Plan, *, ahead: bool = True) -> Iterator[Outcomes]:
        """Run a step, and tell what it found, part by part.

        With `ahead`, the next one is started before this one's outcome is looked at.
        """
        running = self._ahead or self._start(plan)
        self._ahead = self._start_next(running) if ahead else None
        if running.is_ahead:
            for share in running.plan.generation:
                share.sequence.catch_up()
        for parts in _apart(running.parts):
            outcomes = {share.task: Outcome() for part in parts for share in part.shares}
            logits = [self._collect(part, outcomes) for part in parts]
            ran = {task: found for task, found in outcomes.items() if not task.channel.is_ended}
            yield Outcomes(ran, logits)

    def _start(self, plan: Plan) -> _RunningStep:
        for task, error in plan.failed:
            task.fail(error)
        self._model.copy_blocks(plan.copies)
        for task in dict.fromkeys(share.task for share in plan.shares()):
            task.begin()
        parts = [self._run(GENERATION, plan.generation), self._run(PROMPT, plan.prompt)]
        return _RunningStep(plan, [part for part in parts if part is not None])

    def _run(self, phase: ExecutionPhase, shares: Shares) -> _Part | None:
        if not shares:
            return None
        ids = np.concatenate([share.sequence.tokens[share.start : share.end] for share in shares])
        counts = np.array([share.count for share in shares], np.int32)
        # The last rows of each share are wanted, if any.
        wanted = np.array([share.rows for share in shares], np.int32)
        first, rows = np.cumsum(counts) - wanted, np.cumsum(wanted)
        outputs = np.arange(rows[-1]) + np.repeat(first - rows + wanted, wanted)
        sampling = self._sampling_plans(phase, shares)
        part = self._launch(phase, shares, ids, counts, outputs.astype(np.int32), sampling)
        if part and phase is PROMPT:
            self._counters.prompt_tokens += len(ids)
        return part

    def _sampling_plans(
        self, phase: ExecutionPhase, shares: Shares
    ) -> Sequence[SamplingPlan | None]:
        """What the device can sample: tokens after prompts, or if each text runs one token."""
        sampler = self._model.device_sampler
        if phase is PROMPT:
            rows = sum(share.rows for share in shares)
            can = rows <= self._model.decode_sequences and not shares[0].sequence.encoded
        else:
            can = all(share.count == share.rows == 1 for share in shares)
        if sampler is None or not can:
            return [None] * len(shares)
        plans = [share.task.sampling_plan() if share.rows == 1 else None for share in shares]
        return [plan if plan and sampler.accepts(plan) else None for plan in plans]

    def _launch(
        self,
        phase: ExecutionPhase,
        shares: Shares,
        ids: Ints,
        counts: Ints,
        outputs: Ints,
        sampling: Sequence[SamplingPlan | None],
    ) -> _Part | None:
        try:
            blocks = [share.sequence.blocks for share in shares]
            uses = [share.sequence.adapter for share in shares]
            adapters = [(use.slot, use.scale) if use else None for use in uses]
            batch = build_batch(
                blocks, ids, counts, outputs, phase, adapters=adapters, encoded=_encoded(shares)
            )
            plans = [
                plan
                for share, plan in zip(shares, sampling, strict=True)
                for _ in range(share.rows)
            ]
            started = self._model.start(batch, plans)
            if self._hidden_states is not None:
                self._show_hidden(shares, self._hidden_states(len(ids)))
        except Exception as error:  # whatever it is, only these tasks are affected
            self._fail_all(shares, error)
            return None
        return _Part(phase, shares, sampling, started)

    def _show_hidden(self, shares: Shares, hidden: Floats) -> None:
        """Give every task the hidden states of its tokens."""
        first = 0
        for share in shares:
            share.task.see_hidden(share.sequence, share.start, hidden[first : first + share.count])
            first += share.count

    def _start_next(self, running: _RunningStep) -> _RunningStep | None:
        """Start the step after one that runs, if it is certain what that will be."""
        sampler = self._model.device_sampler
        if sampler is None or not self._scheduler.is_steady:
            return None
        following = _Following.after(running, len(self._scheduler.running), sampler)
        if following is None:
            return None
        ids = -1 - np.array(following.rows, np.int32)
        counts, outputs = np.ones_like(ids), np.arange(len(ids), dtype=np.int32)
        part = self._launch(GENERATION, following.shares, ids, counts, outputs, following.sampling)
        return _RunningStep(Plan(following.shares), [part] if part else [], is_ahead=True)

    def _collect(self, part: _Part, outcomes: dict[Task, Outcome]) -> Logits:
        """Wait for a part of the step; give each task its token or its rows of the logits."""
        try:
            found = part.started.result()
        except Exception as error:  # as above
            self._fail_all(part.shares, error)
            return np.empty((0, 0), np.float32)
        self._count_seconds(part, found.seconds)
        row, kept, tokens = 0, 0, found.tokens.tolist()
        for share, plan in zip(part.shares, part.sampling, strict=True):
            outcome, count = outcomes[share.task], share.rows
            if plan is not None:
                outcome.token = tokens[row]
            elif count:
                rows = found.logits[kept : kept + count]
                outcome.rows = (*outcome.rows, Rows(share.sequence, share.end - count, rows))
                kept += count
            row += count
        return found.logits

    def _count_seconds(self, part: _Part, seconds: float | None) -> None:
        """Let the next chunks be chosen by what steps took."""
        if seconds is None or (chunks := self._scheduler.chunks) is None:
            return
        saw = chunks.saw_chunk if part.phase is PROMPT else chunks.saw_decode
        saw(sum(share.count for share in part.shares), seconds)

    def _fail_all(self, shares: Shares, error: Exception) -> None:
        for share in shares:
            self._fail(share.task, error)


def _apart(parts: Sequence[_Part]) -> Iterator[Sequence[_Part]]:
    """The parts of a step one by one; both together if a task has sequences in both."""
    tasks = [{share.task for share in part.shares} for part in parts]
    if len(parts) > 1 and not tasks[0].isdisjoint(tasks[1]):
        yield parts
    else:
        yield from ([part] for part in parts)


def _sampled_rows(
    parts: Sequence[_Part], sampler: DeviceSampler
) -> Iterator[tuple[int, Share, SamplingPlan | None]]:
    """The shares of a step, and the rows that sample their tokens, if a device does."""
    for part in parts:
        row = sampler.prompt_rows if part.phase is PROMPT else 0
        for share, plan in zip(part.shares, part.sampling, strict=True):
            yield row, share, plan
            row += share.rows


def _encoded(shares: Shares) -> Ints | None:
    """How many tokens of each sequence an encoder reads, if there is one."""
    if not shares[0].sequence.encoded:
        return None
    return np.array([share.sequence.prompted for share in shares], np.int32)


@dataclass(frozen=True, slots=True)
class _Following:
    """The step after one that runs; `rows` of that one sample its tokens."""

    shares: list[Share]
    rows: list[int]
    sampling: list[SamplingPlan]

    @classmethod
    def after(
        cls, running: _RunningStep, tasks: int, sampler: DeviceSampler
    ) -> "_Following | None":
        """The next step, if all of `tasks` tasks run, continue or end for certain, and find room
        in the cache."""
        found = cls([], [], [])
        for row, share, sampled in _sampled_rows(running.parts, sampler):
            task = share.task
            if task.channel.is_ended:
                continue
            if sampled is not None and task.ends_with_next:
                tasks -= 1
                continue
            plan = None if sampled is None else task.sampling_plan(ahead=1)
            if plan is None or not sampler.accepts(plan):
                return None
            found.shares.append(Share(task, share.sequence, share.end, 1))
            found.rows.append(row)
            found.sampling.append(plan)
        if not found.shares or len(found.shares) < tasks:
            return None
        return found if found._make_room() else None

    def _make_room(self) -> bool:
        grown = []
        try:
            for share in self.shares:
                share.sequence.grow_ahead()
                grown.append(share.sequence)
        except CacheFullError:  # another sequence has to make room first
            for sequence in grown:
                sequence.shrink_ahead()
            return False
        return True
