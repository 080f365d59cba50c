"""Scheduler: which tokens of which tasks run in the next step. Pure bookkeeping: no model.

Tasks are admitted in the order they came, while there is room for their prompts. In a step
every text that is being written gets one token (more, if it has more to run), and the prompts
that are being read share `chunk` tokens: a long prompt never holds the others up for longer than
that. When the cache runs out, the task that came last gives its place up and comes back before
all that wait; the one that came first always goes on, so all of them come to an end.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np

from ingot.backends.batch import ExecutionPhase
from ingot.engine.strand import Strand
from ingot.errors import CacheFullError
from ingot.graph.kv_layout import BLOCK_TOKENS
from ingot.kvcache import KvCache

PROMPT, GENERATION = ExecutionPhase.PROMPT, ExecutionPhase.GENERATION


class Task(Protocol):
    """What the scheduler knows of a task: its texts, all of which run before it can go on."""

    strands: list[Strand]


T = TypeVar("T", bound=Task)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one step, and all the tasks together, may take."""

    running: int  # texts in the cache at once, at most GENERATION's tokens of a step
    queue: int  # tasks that wait
    generation_tokens: int  # of a step
    prompt_tokens: int  # of a step while nothing is generated
    chunk: int  # of a step, else
    rows: int  # of logits in a step


@dataclass(frozen=True, slots=True)
class Share(Generic[T]):
    """A strand's part in a step: its next tokens, for which it has room already."""

    task: T
    strand: Strand
    start: int
    count: int

    @property
    def end(self) -> int:
        """Behind the last of the tokens."""
        return self.start + self.count

    @property
    def wanted(self) -> range:
        """Those of the tokens, counted from the first of them, whose logits are wanted."""
        return range(min(max(self.strand.rows_from - self.start, 0), self.count), self.count)


@dataclass(slots=True)
class Plan(Generic[T]):
    """A step."""

    generation: list[Share[T]] = field(default_factory=list)
    prompt: list[Share[T]] = field(default_factory=list)
    failed: list[tuple[T, CacheFullError]] = field(default_factory=list)

    def shares(self) -> Iterator[Share[T]]:
        """All of them, in the order they run."""
        yield from self.generation
        yield from self.prompt


class Scheduler(Generic[T]):
    """The tasks that wait and those that run, oldest first."""

    def __init__(self, cache: KvCache, limits: Limits) -> None:
        self.cache = cache
        self.limits = limits
        self.waiting: deque[T] = deque()
        self.running: list[T] = []
        self.preemptions = 0
        self.reused_tokens = 0

    def remove(self, task: T) -> None:
        """A task has come to its end, or is not wanted any more."""
        if task in self.running:
            self.running.remove(task)
        elif task in self.waiting:
            self.waiting.remove(task)
        for strand in task.strands:
            strand.close()

    def plan(self) -> Plan[T]:
        """Choose the next step's tokens and make room for them."""
        self._admit()
        for task in self.running:
            for strand in task.strands:
                if strand.sequence is None:
                    strand.open(self.cache)
                    self.reused_tokens += strand.computed
        plan: Plan[T] = Plan()
        self._share(GENERATION, self.limits.generation_tokens, plan)
        budget = self.limits.chunk if plan.generation else self.limits.prompt_tokens
        self._share(PROMPT, budget, plan)
        return plan

    @property
    def is_steady(self) -> bool:
        """Whether the next step can only be of those that run: nobody waits for a free place."""
        texts = sum(len(task.strands) for task in self.running)
        return not self.waiting or texts >= self.limits.running

    def settle(self, plan: Plan[T]) -> None:
        """After a step: let others find what was computed."""
        for share in plan.shares():
            share.strand.settle()

    def _admit(self) -> None:
        texts = sum(len(task.strands) for task in self.running)
        held: list[T] = []  # until a prompt that runs has read what they have in common
        while self.waiting:
            task = self.waiting[0]
            if self.running and texts + len(task.strands) > self.limits.running:
                break
            if texts + len(held) < self.limits.running and self._is_being_read(task):
                held.append(self.waiting.popleft())
                continue
            if self.running and not self._has_room(task):
                break
            self.waiting.popleft()
            self.running.append(task)
            texts += len(task.strands)
        self.waiting.extendleft(reversed(held))

    def _is_being_read(self, task: T) -> bool:
        """Whether a prompt that runs will leave more of this one in the cache than there is."""
        strand = task.strands[0]
        if not (self.cache.shares and strand.reuse) or len(task.strands) > 1 or strand.sequence:
            return False
        reading = (
            other.strands[0]
            for other in self.running
            if other.strands[0].phase is PROMPT and other.strands[0].pending
        )
        same = max((_common_runs(strand, other) for other in reading), default=0)
        return same > 0 and same > self.cache.known_runs(strand.tokens, strand.prompted)

    def _has_room(self, task: T) -> bool:
        """Whether the cache holds all tokens of a task beside a run more of those that run."""
        spare = len(self.running)
        for group, spec in enumerate(self.cache.pool.layout.groups):
            needed = spare
            for strand in task.strands:
                needed += spec.blocks_of(len(strand) + 1, self.limits.prompt_tokens) + 1
            if needed > self.cache.pool.available(group):
                return False
        return True

    def _share(self, phase: ExecutionPhase, budget: int, plan: Plan[T]) -> None:
        """Divide the tokens of a phase: everyone's fair part first, then the rest by age."""
        waiting = [
            (task, strand)
            for task in self.running
            for strand in task.strands
            if strand.pending and strand.phase is phase
        ]
        if not waiting:
            return
        fair = max(1, budget // len(waiting))
        if phase is PROMPT:
            fair = max(fair, BLOCK_TOKENS)
        counts: list[int] = []
        rows = self.limits.rows
        for _, strand in waiting:
            counts.append(min(strand.runnable, fair, budget))
            budget -= counts[-1]
        for index, (_, strand) in enumerate(waiting):
            more = min(strand.runnable - counts[index], budget)
            counts[index] += more
            budget -= more
            free = max(strand.rows_from - strand.computed, 0)  # tokens without rows
            counts[index] = min(counts[index], free + rows)
            rows -= max(counts[index] - free, 0)
        for (task, strand), count in zip(waiting, counts, strict=True):
            if count and task in self.running:
                self._grow(task, strand, count, phase, plan)

    def _grow(
        self, task: T, strand: Strand, count: int, phase: ExecutionPhase, plan: Plan[T]
    ) -> None:
        """Make room for a strand's tokens, if need be at the expense of the task that came last."""
        assert strand.sequence is not None, "it runs"
        while True:
            start = strand.computed
            try:
                strand.sequence.blocks.grow(count)
            except CacheFullError as error:
                last = self.running[-1]
                if len(self.running) == 1:
                    self._drop(last, plan)
                    self.remove(last)
                    plan.failed.append((last, error))
                else:
                    self._drop(last, plan)
                    self._preempt(last)
                if last is task:
                    return
            else:
                shares = plan.generation if phase is GENERATION else plan.prompt
                shares.append(Share(task, strand, start, count))
                return

    def _drop(self, task: T, plan: Plan[T]) -> None:
        plan.generation = [share for share in plan.generation if share.task is not task]
        plan.prompt = [share for share in plan.prompt if share.task is not task]

    def _preempt(self, task: T) -> None:
        """Take a task's place in the cache; it waits before all others to have it again."""
        self.running.remove(task)
        for strand in task.strands:
            strand.close()
        self.waiting.appendleft(task)
        self.preemptions += 1


def _common_runs(one: Strand, other: Strand) -> int:
    """How many full runs two prompts have in common; the last token of neither counts."""
    limit = min(len(one) - 1, other.prompted - 1)
    different = np.flatnonzero(one.tokens[:limit] != other.tokens[:limit])
    return (int(different[0]) if len(different) else limit) // BLOCK_TOKENS
