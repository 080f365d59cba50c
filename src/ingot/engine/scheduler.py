"""Scheduler: which tokens of which tasks run in the next step. Pure bookkeeping, without a model.

Tasks are admitted in the order they came, while there is room for their prompts. In a step every
sequence in decode gets one token (more, if it has more to run), and the prompts in prefill share
`chunk` tokens: a long prompt never delays the others for longer than that. When the cache runs out,
the task that came last is preempted and comes back before all that wait; the one that came first
always continues, so all of them end.
"""

import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ingot.backends.batch import ExecutionPhase
from ingot.engine.sequence import TokenSequence
from ingot.engine.task import Task
from ingot.errors import CacheFullError
from ingot.graph.kv_layout import BLOCK_TOKENS
from ingot.kvcache import KvCache

_log = logging.getLogger("ingot.engine")

PROMPT, GENERATION = ExecutionPhase.PROMPT, ExecutionPhase.GENERATION


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one step, and of all tasks together."""

    running: int  # sequences in the cache at once
    queue: int  # tasks that wait
    generation_tokens: int  # of a step
    prompt_tokens: int  # of a step without decode
    chunk: int  # prompt tokens of a step with decode
    rows: int  # rows of logits in a step


@dataclass(slots=True)  # not frozen: one is made for every token
class Share:
    """The next tokens of a sequence in a step; the cache has room for them."""

    task: Task
    sequence: TokenSequence
    start: int
    count: int

    @property
    def end(self) -> int:
        """The position after the last of the tokens."""
        return self.start + self.count

    @property
    def wanted(self) -> range:
        """The tokens whose logits are wanted, counted from `start`."""
        return range(min(max(self.sequence.rows_from - self.start, 0), self.count), self.count)


@dataclass(slots=True)
class Plan:
    """The tokens of a step."""

    generation: list[Share] = field(default_factory=list)
    prompt: list[Share] = field(default_factory=list)
    failed: list[tuple[Task, CacheFullError]] = field(default_factory=list)

    def shares(self) -> Iterator[Share]:
        """Both phases, in the order they run."""
        yield from self.generation
        yield from self.prompt


class Scheduler:
    """The tasks that wait and the tasks that run, oldest first."""

    def __init__(self, cache: KvCache, limits: Limits) -> None:
        self.cache = cache
        self.limits = limits
        self.waiting: deque[Task] = deque()
        self.running: list[Task] = []
        self.preemptions = 0
        self.reused_tokens = 0

    def remove(self, task: Task) -> None:
        """Forget a task and free its place in the cache."""
        if task in self.running:
            self.running.remove(task)
        elif task in self.waiting:
            self.waiting.remove(task)
        for sequence in task.sequences:
            sequence.close()

    def plan(self) -> Plan:
        """Pick the tokens of the next step and make room for them."""
        self._admit()
        for task in self.running:
            for sequence in task.sequences:
                if sequence.cached is None:
                    sequence.open(self.cache)
                    self.reused_tokens += sequence.computed
        plan = Plan()
        self._share(GENERATION, self.limits.generation_tokens, plan)
        budget = self.limits.chunk if plan.generation else self.limits.prompt_tokens
        self._share(PROMPT, budget, plan)
        return plan

    @property
    def is_steady(self) -> bool:
        """Whether no other task could join the next step: none waits, or there is no place."""
        texts = sum(len(task.sequences) for task in self.running)
        return not self.waiting or texts >= self.limits.running

    def settle(self, plan: Plan) -> None:
        """File what a step computed in the prefix cache."""
        for share in plan.shares():
            share.sequence.settle()

    def _admit(self) -> None:
        texts = sum(len(task.sequences) for task in self.running)
        held: list[Task] = []  # until a running prefill has computed their common prefix
        while self.waiting:
            task = self.waiting[0]
            if self.running and texts + len(task.sequences) > self.limits.running:
                break
            if texts + len(held) < self.limits.running and self._is_being_read(task):
                held.append(self.waiting.popleft())
                continue
            if self.running and not self._has_room(task):
                break
            self.waiting.popleft()
            self.running.append(task)
            texts += len(task.sequences)
        self.waiting.extendleft(reversed(held))

    def _is_being_read(self, task: Task) -> bool:
        """Whether a running prefill will leave more of this prompt in the cache than there is."""
        sequence = task.sequences[0]
        if not (self.cache.shares and sequence.reuse) or len(task.sequences) > 1 or sequence.cached:
            return False
        reading = (
            other.sequences[0]
            for other in self.running
            if other.sequences[0].phase is PROMPT and other.sequences[0].pending
        )
        same = max((_common_runs(sequence, other) for other in reading), default=0)
        return same > 0 and same > self.cache.known_runs(sequence.tokens, sequence.prompted)

    def _has_room(self, task: Task) -> bool:
        """Whether the cache has blocks for a task, and one more for each running task."""
        spare = len(self.running)
        for group, spec in enumerate(self.cache.pool.layout.groups):
            needed = spare
            for sequence in task.sequences:
                needed += spec.blocks_of(len(sequence) + 1, self.limits.prompt_tokens) + 1
            if needed > self.cache.pool.available(group):
                return False
        return True

    def _share(self, phase: ExecutionPhase, budget: int, plan: Plan) -> None:
        """Divide the tokens of a phase: a fair part for everyone first, then the rest by age."""
        waiting = [
            (task, sequence)
            for task in self.running
            for sequence in task.sequences
            if sequence.pending and sequence.phase is phase
        ]
        if not waiting:
            return
        fair = max(1, budget // len(waiting))
        if phase is PROMPT:
            fair = max(fair, BLOCK_TOKENS)
        counts: list[int] = []
        rows = self.limits.rows
        for _, sequence in waiting:
            counts.append(min(sequence.runnable, fair, budget))
            budget -= counts[-1]
        for index, (_, sequence) in enumerate(waiting):
            more = min(sequence.runnable - counts[index], budget)
            counts[index] += more
            budget -= more
            free = max(sequence.rows_from - sequence.computed, 0)  # tokens without rows
            counts[index] = min(counts[index], free + rows)
            rows -= max(counts[index] - free, 0)
        for (task, sequence), count in zip(waiting, counts, strict=True):
            if count and task in self.running:
                self._grow(task, sequence, count, phase, plan)

    def _grow(
        self, task: Task, sequence: TokenSequence, count: int, phase: ExecutionPhase, plan: Plan
    ) -> None:
        """Make room for tokens of a sequence; if necessary, preempt the task that came last."""
        assert sequence.cached is not None, "it runs"
        while True:
            start = sequence.computed
            try:
                sequence.cached.blocks.grow(count)
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
                shares.append(Share(task, sequence, start, count))
                return

    def _drop(self, task: Task, plan: Plan) -> None:
        plan.generation = [share for share in plan.generation if share.task is not task]
        plan.prompt = [share for share in plan.prompt if share.task is not task]

    def _preempt(self, task: Task) -> None:
        """Take a task's blocks; it waits before all others to get some again."""
        self.running.remove(task)
        for sequence in task.sequences:
            sequence.close()
        self.waiting.appendleft(task)
        self.preemptions += 1
        _log.info("the KV cache is full: a request is computed again later (cache_tokens)")


def _common_runs(one: TokenSequence, other: TokenSequence) -> int:
    """How many full blocks two prompts have in common; the last token of neither counts."""
    limit = min(len(one) - 1, other.prompted - 1)
    different = np.flatnonzero(one.tokens[:limit] != other.tokens[:limit])
    return (int(different[0]) if len(different) else limit) // BLOCK_TOKENS
