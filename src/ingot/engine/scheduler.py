"""Scheduler: which tokens of which tasks run in the next step. Pure bookkeeping, without a model.

Tasks are admitted by priority (lower values first) and then in the order they came, while there is
room for their prompts. In a step every sequence in decode gets one token (more, if it has more to
run), and the prompts in prefill share a chunk of tokens: a long prompt never delays the others for
longer than that, unless an encoder reads it, which takes it whole. When the cache runs out, the
task with the highest value is preempted, of equals the one that came last; it comes back before all
that wait with the same priority. The oldest of those with the lowest value always continues, so all
of them end. Tasks with a higher value wait as long as others with lower values come.
"""

import logging
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ingot.backends.batch import ExecutionPhase
from ingot.engine.chunk_sizes import ChunkSizes
from ingot.engine.sequence import TokenSequence
from ingot.engine.task import Task
from ingot.errors import CacheFullError
from ingot.graph.kv_layout import BLOCK_TOKENS
from ingot.kvcache import BlockCopy, KvCache

_log = logging.getLogger("ingot.engine")

_READERS = 3  # prompts that share a chunk at least, if they are long
_FAIR_TOKENS = 128  # of one of them, at most, before others get their part

PROMPT, GENERATION = ExecutionPhase.PROMPT, ExecutionPhase.GENERATION


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one step, and of all tasks together."""

    running: int  # sequences in the cache at once
    queue: int  # tasks that wait
    generation_tokens: int  # of a step
    prompt_tokens: int  # of a step without decode
    chunk: int  # prompt tokens of a step with decode, if `ChunkSizes` do not choose
    rows: int  # rows of logits in a step
    whole_prompts: bool = False  # a prompt runs in one step: an encoder reads it
    whole_runs: bool = False  # a prompt is cut at the ends of runs, where kernels begin a chunk


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
    def rows(self) -> int:
        """How many of the tokens, which are the last, have logits that are wanted."""
        return min(max(self.end - self.sequence.rows_from, 0), self.count)


@dataclass(slots=True)
class Plan:
    """The tokens of a step."""

    generation: list[Share] = field(default_factory=list)
    prompt: list[Share] = field(default_factory=list)
    copies: list[BlockCopy] = field(default_factory=list)  # of blocks, before the step runs
    failed: list[tuple[Task, CacheFullError]] = field(default_factory=list)

    def shares(self) -> Iterator[Share]:
        """Both phases, in the order they run."""
        yield from self.generation
        yield from self.prompt


class Scheduler:
    """The tasks that wait, in the order of admission, and the tasks that run, oldest first."""

    def __init__(self, cache: KvCache, limits: Limits, chunks: ChunkSizes | None = None) -> None:
        """`chunks` chooses the prompt tokens of a step with decode."""
        self.cache = cache
        self.limits = limits
        self.chunks = chunks
        self.waiting: deque[Task] = deque()
        self.running: list[Task] = []
        # After the part of a prompt that later ones share; a prompt must be cut there.
        self._keeps_states = cache.keeps_ends and not limits.whole_runs
        self.preemptions = 0
        self.reused_tokens = 0

    def add(self, task: Task) -> None:
        """Have a task wait, after those with the same priority."""
        self.waiting.insert(bisect_right(self.waiting, task.priority, key=_priority), task)

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
        plan = Plan()
        for task in self.running:
            for sequence in task.sequences:
                if sequence.cached is None:
                    plan.copies += sequence.open(self.cache)
                    self.reused_tokens += sequence.computed
        self._share(GENERATION, self.limits.generation_tokens, plan)
        self._share(PROMPT, self._prompt_budget(plan), plan)
        if self._keeps_states:
            for share in plan.shares():
                if share.start == share.sequence.shared:
                    plan.copies += share.sequence.keep_states()
        return plan

    def _prompt_budget(self, plan: Plan) -> int:
        """How many prompt tokens may run beside the decode of a step."""
        if not plan.generation:
            return self.limits.prompt_tokens
        if self.chunks is None:
            return self.limits.chunk
        return self.chunks.choose(sum(share.count for share in plan.generation))

    @property
    def is_steady(self) -> bool:
        """Whether no other task could join the next step.

        None waits, there is no place, or the cache has no room for the first of them.
        """
        if not self.waiting or not self.running:
            return not self.waiting
        texts = sum(len(task.sequences) for task in self.running)
        return texts >= self.limits.running or not self._has_room(self.waiting[0])

    def settle(self, plan: Plan) -> None:
        """File what a step computed in the prefix cache."""
        self.cache.file_ends()
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
            if other.sequences[0].first_run == sequence.first_run
            and other.sequences[0].phase is PROMPT
            and other.sequences[0].pending
            and other.sequences[0].variant == sequence.variant
        )
        same = max((_common_runs(sequence, other) for other in reading), default=0)
        return same > 0 and same > self.cache.known_runs(
            sequence.tokens, sequence.prompted, sequence.variant
        )

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
        counts = [sequence.runnable for _, sequence in waiting]
        if self.limits.whole_prompts and phase is PROMPT:
            counts = _whole(counts, budget)
        elif sum(counts) > min(budget, self.limits.rows):
            counts = self._divide(phase, budget, [sequence for _, sequence in waiting])
        for (task, sequence), count in zip(waiting, counts, strict=True):
            if count and sequence.cached is not None:  # or else it was preempted
                shared = sequence.shared - sequence.computed
                cut = self._keeps_states and 0 < shared < count
                self._grow(task, sequence, shared if cut else count, phase, plan)

    def _divide(
        self, phase: ExecutionPhase, budget: int, waiting: Sequence[TokenSequence]
    ) -> list[int]:
        """How many tokens each sequence gets, if there are too many for a step."""
        counts = _parts(phase, budget, [sequence.runnable for sequence in waiting])
        budget -= sum(counts)
        rows = self.limits.rows
        for index, sequence in enumerate(waiting):
            more = min(sequence.runnable - counts[index], budget)
            counts[index] += more
            budget -= more
            free = max(sequence.rows_from - sequence.computed, 0)  # tokens without rows
            counts[index] = min(counts[index], free + rows)
            if self.limits.whole_runs and phase is PROMPT:
                wait = any(counts[:index])  # somebody else runs
                counts[index] = _to_end_of_run(sequence, counts[index], wait=wait)
            rows -= max(counts[index] - free, 0)
        return counts

    def _grow(
        self, task: Task, sequence: TokenSequence, count: int, phase: ExecutionPhase, plan: Plan
    ) -> None:
        """Make room for tokens of a sequence; if necessary, preempt the least urgent task."""
        assert sequence.cached is not None, "it runs"
        while True:
            start = sequence.computed
            try:
                sequence.cached.blocks.grow(count)
            except CacheFullError as error:
                last = max(reversed(self.running), key=_priority)  # of equals, the youngest
                self._drop(last, plan)
                if len(self.running) == 1:
                    self.remove(last)
                    plan.failed.append((last, error))
                else:
                    self._preempt(last)
                if last is task:
                    return
            else:
                shares = plan.generation if phase is GENERATION else plan.prompt
                shares.append(Share(task, sequence, start, count))
                plan.copies += sequence.copies
                sequence.copies = []
                return

    def _drop(self, task: Task, plan: Plan) -> None:
        plan.generation = [share for share in plan.generation if share.task is not task]
        plan.prompt = [share for share in plan.prompt if share.task is not task]

    def _preempt(self, task: Task) -> None:
        """Take a task's blocks; it waits before others with its priority to get some again."""
        self.running.remove(task)
        for sequence in task.sequences:
            sequence.close()
        self.waiting.insert(bisect_left(self.waiting, task.priority, key=_priority), task)
        self.preemptions += 1
        _log.info("the KV cache is full: a request is computed again later (cache_tokens)")


def _priority(task: Task) -> int:
    return task.priority


def _parts(phase: ExecutionPhase, budget: int, wanted: Sequence[int]) -> list[int]:
    """A fair part for each of those that want so many tokens, the oldest first.

    Short parts of prompts make many steps, each with an attention of few queries. So a prompt gets
    no less than a part that pays, and the younger ones of many wait. Prompts that are not longer
    than such a part come first, in up to half of the step.
    """
    part = max(1, budget // len(wanted))
    if phase is GENERATION:
        return [min(count, part) for count in wanted]
    pays = min(budget // _READERS, _FAIR_TOKENS) // BLOCK_TOKENS * BLOCK_TOKENS
    part = max(part, pays, BLOCK_TOKENS)
    counts = [0] * len(wanted)
    room = budget // 2
    for index, count in enumerate(wanted):
        if count <= min(part, room):
            counts[index] = count
            room -= count
    budget -= sum(counts)
    for index, count in enumerate(wanted):
        if not counts[index]:
            counts[index] = min(count, part, budget)
            budget -= counts[index]
    return counts


def _to_end_of_run(sequence: TokenSequence, count: int, *, wait: bool) -> int:
    """How many of these tokens end with the prompt or with a run.

    If they reach no end, all of them, or with `wait` none.
    """
    end = (sequence.computed + count) // BLOCK_TOKENS * BLOCK_TOKENS
    whole = max(end - sequence.computed, 0)
    if count == sequence.runnable or not (whole or wait):
        return count
    return whole


def _whole(counts: Sequence[int], budget: int) -> list[int]:
    """Prompts that run whole: the oldest in any case, and those after it that fit."""
    given: list[int] = []
    for count in counts:
        fits = not given or sum(given) + count <= budget
        given.append(count if fits else 0)
    return given


def _common_runs(one: TokenSequence, other: TokenSequence) -> int:
    """How many full blocks two prompts have in common; the last token of neither counts."""
    limit = min(len(one) - 1, other.prompted - 1)
    different = np.flatnonzero(one.tokens[:limit] != other.tokens[:limit])
    return (int(different[0]) if len(different) else limit) // BLOCK_TOKENS
