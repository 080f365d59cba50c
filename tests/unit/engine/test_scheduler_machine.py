"""The scheduler against a plain model of what it promises.

Tasks of one or several texts come, are cancelled, are run step by step by an engine that only
remembers what was computed. Whatever happens: a step stays within its limits, tokens run in order
and in their phase, every text sees itself alone, the oldest of the most urgent tasks goes on in
every step, those that wait are in the order of their priorities, nothing starves once no more tasks
come, and in the end every block is free again.
"""

from collections.abc import Sequence

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ingot.engine.channel import Channel
from ingot.engine.scheduler import Limits, Scheduler
from ingot.engine.sequence import TokenSequence
from ingot.engine.task import Outcome, Task
from ingot.graph import KvLayer
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout
from ingot.graph.kv_type import KvType
from ingot.kvcache import KvCache, Reuse

WINDOWS = (0, 40)
BLOCKS = 12
CONTEXT = BLOCKS * BLOCK_TOKENS
LIMITS = Limits(running=4, queue=8, generation_tokens=6, prompt_tokens=90, chunk=40, rows=20)
LAYOUT = KvLayout.of([KvLayer(1, 32, window) for window in WINDOWS], KvType.F16)
PIECES = [[1] * BLOCK_TOKENS, [2] * BLOCK_TOKENS, [1] * 10, [3] * 50]


class FakeTask(Task):
    """Writes a number of tokens, the same whenever and with whomever it runs."""

    def __init__(
        self, number: int, prompts: list[list[int]], tokens: int, guesses: int, priority: int
    ) -> None:
        self.number, self.left, self.guesses = number, tokens, guesses
        self.priority = priority
        self.channel: Channel[bool] = Channel()
        self.sequences = [TokenSequence(np.array(prompt, np.int32)) for prompt in prompts]
        self.guessed = 0
        self.steps_waited = 0

    def receive(self, outcome: Outcome) -> None:
        """No model runs."""

    def advance(self) -> bool:
        """Take the guesses that were right, add a token and perhaps new guesses; False: the end."""
        sequence = self.sequences[0]
        right = self.guessed // 2
        sequence.cut(len(sequence) - self.guessed + right)
        sequence.rewind(len(sequence))
        self.guessed = 0
        self.left -= 1 + right
        if self.left <= 0 or len(sequence) + 1 + self.guesses > CONTEXT // len(self.sequences):
            return False
        new = [1 + (self.number + len(sequence)) % 3]
        if len(self.sequences) == 1:
            self.guessed = self.guesses
        for each in self.sequences:
            each.extend([*new, *[9] * self.guessed], rows=1 + self.guessed)
        return True


def most_urgent(tasks: Sequence[Task]) -> Task:
    """The oldest of those with the lowest value."""
    return min(tasks, key=lambda task: task.priority)


class SchedulerMachine(RuleBasedStateMachine):
    """`memory` is what each slot of each block was last given: a text, and how it was computed."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler: Scheduler | None = None
        self.memory: dict[tuple[int, int, int], tuple[bytes, int]] = {}
        self.made = 0

    @precondition(lambda self: self.scheduler is None)
    @rule(reuse=st.sampled_from(list(Reuse)))
    def begin(self, reuse: Reuse) -> None:
        self.scheduler = Scheduler(KvCache(LAYOUT, BLOCKS, reuse), LIMITS)

    def tasks(self) -> list[FakeTask]:
        return [*self.scheduler.running, *self.scheduler.waiting] if self.scheduler else []

    @precondition(lambda self: self.scheduler is not None and len(self.tasks()) < 8)
    @rule(
        pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=4),
        texts=st.sampled_from([1, 1, 1, 2, 3]),
        tokens=st.integers(1, 60),
        guesses=st.integers(0, 3),
        priority=st.sampled_from([0, 0, -5, 3]),
    )
    def submit(
        self, pieces: list[list[int]], texts: int, tokens: int, guesses: int, priority: int
    ) -> None:
        prompt = [token for piece in pieces for token in piece]
        prompts = [prompt[: CONTEXT // texts - 8]] * texts
        self.scheduler.add(FakeTask(self.made, prompts, tokens, guesses, priority))
        self.made += 1

    @precondition(lambda self: self.tasks())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        numbers = sorted(task.number for task in self.tasks())
        number = data.draw(st.sampled_from(numbers))
        self.scheduler.remove(next(task for task in self.tasks() if task.number == number))

    @precondition(lambda self: self.tasks())
    @rule(steps=st.integers(1, 12))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            if self.tasks():
                self.one_step()

    def one_step(self) -> None:
        scheduler = self.scheduler
        before = most_urgent(scheduler.running or self.tasks())
        plan = scheduler.plan()
        assert not plan.failed, "every task here fits alone"
        assert scheduler.running, "somebody goes on"
        first = most_urgent(scheduler.running)
        assert first is before or first.priority < before.priority, "only for a more urgent one"
        assert any(share.task is first for share in plan.shares()), "the most urgent one goes on"
        assert sum(share.count for share in plan.generation) <= LIMITS.generation_tokens
        prompt = sum(share.count for share in plan.prompt)
        assert prompt <= (LIMITS.chunk if plan.generation else LIMITS.prompt_tokens)
        assert sum(share.rows for share in plan.shares()) <= 2 * LIMITS.rows
        for copy in plan.copies:
            for slot in range(BLOCK_TOKENS):
                if known := self.memory.get((copy.group, copy.source, slot)):
                    self.memory[copy.group, copy.target, slot] = known
        for share in plan.shares():
            self.compute(share.sequence, share.start, share.count)
        for task in dict.fromkeys(share.task for share in plan.shares()):
            if not any(sequence.pending for sequence in task.sequences) and not task.advance():
                scheduler.settle(plan)
                scheduler.remove(task)
        scheduler.settle(plan)

    def compute(self, sequence: TokenSequence, start: int, count: int) -> None:
        """Write tokens to the cache, after a look at all that they see."""
        assert sequence.computed == start + count
        phase = sequence.prompted > start
        assert not phase or start + count <= sequence.prompted, "one phase at a time"
        tokens = sequence.tokens
        tables = sequence.blocks.tables
        for group, window in enumerate(WINDOWS):
            oldest = max(0, start - window + 1) if window else 0
            for seen in range(oldest, start):
                block = int(tables[group][seen // BLOCK_TOKENS])
                known, prompted = self.memory[group, block, seen % BLOCK_TOKENS]
                assert known == tokens[: seen + 1].tobytes()
                if self.scheduler.cache.reuse is not Reuse.ALL:
                    assert prompted == min(sequence.prompted, seen + 1)
            for position in range(start, start + count):
                block = int(tables[group][position // BLOCK_TOKENS])
                known = tokens[: position + 1].tobytes(), min(sequence.prompted, position + 1)
                self.memory[group, block, position % BLOCK_TOKENS] = known

    @invariant()
    def those_that_wait_are_in_order(self) -> None:
        if self.scheduler:
            priorities = [task.priority for task in self.scheduler.waiting]
            assert priorities == sorted(priorities)

    @invariant()
    def limits_hold(self) -> None:
        if self.scheduler and len(self.scheduler.running) > 1:
            texts = sum(len(task.sequences) for task in self.scheduler.running)
            assert texts <= LIMITS.running

    def teardown(self) -> None:
        if self.scheduler is None:
            return
        most = 40 * (1 + len(self.tasks())) * 60
        for _ in range(most):
            if not self.tasks():
                break
            self.one_step()
        assert not self.tasks(), "a task starved"
        cache = self.scheduler.cache
        cache.clear()
        assert [cache.pool.free(group) for group in range(len(WINDOWS))] == [BLOCKS] * len(WINDOWS)
        assert cache.filed_runs == 0


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
