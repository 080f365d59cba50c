"""The scheduler, one promise at a time; `test_scheduler_machine.py` has all of them together."""

from dataclasses import replace

import numpy as np
import pytest

from ingot.engine.channel import Channel
from ingot.engine.scheduler import Limits, Plan, Scheduler
from ingot.engine.sequence import TokenSequence
from ingot.engine.task import Outcome, Task
from ingot.graph import KvLayer
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout
from ingot.graph.kv_type import KvType
from ingot.kvcache import KvCache, Reuse

LAYOUT = KvLayout.of([KvLayer(1, 32, 0)], KvType.F16)
LIMITS = Limits(running=4, queue=8, generation_tokens=6, prompt_tokens=90, chunk=40, rows=20)


class Prompts(Task):
    """Some prompts, and nothing after them."""

    def __init__(self, *prompts: list[int]) -> None:
        self.channel: Channel[bool] = Channel()
        self.sequences = [TokenSequence(np.array(prompt, np.int32)) for prompt in prompts]

    def receive(self, outcome: Outcome) -> None:
        """No model runs."""


def prompt(first: int, count: int) -> Prompts:
    """A prompt that has nothing in common with others."""
    return Prompts([first * 1000 + index for index in range(count)])


def scheduler(
    *waiting: Task, blocks: int = 12, reuse: Reuse = Reuse.NONE, **limits: int
) -> Scheduler:
    made = Scheduler(KvCache(LAYOUT, blocks, reuse), replace(LIMITS, **limits))
    made.waiting.extend(waiting)
    return made


def counts(plan: Plan) -> list[int]:
    return [share.count for share in plan.prompt]


def test_tasks_are_admitted_in_order_up_to_the_limit() -> None:
    tasks = [prompt(number, 3) for number in range(6)]
    one = scheduler(*tasks)
    assert counts(one.plan()) == [3, 3, 3, 3]
    assert one.running == tasks[:4]
    assert list(one.waiting) == tasks[4:]
    one.remove(tasks[1])
    one.plan()
    assert one.running == [tasks[0], *tasks[2:5]]


def test_tasks_wait_by_priority_and_then_in_order() -> None:
    tasks = [prompt(number, 3) for number in range(5)]
    one = scheduler()
    for task, priority in zip(tasks, (3, 0, 3, -1, 0), strict=True):
        task.priority = priority
        one.add(task)
    assert list(one.waiting) == [tasks[3], tasks[1], tasks[4], tasks[0], tasks[2]]
    one.remove(tasks[4])
    assert list(one.waiting) == [tasks[3], tasks[1], tasks[0], tasks[2]]
    assert one.running == []


def test_every_sequence_of_a_task_counts_and_nobody_overtakes() -> None:
    first, second, third = (
        prompt(1, 3),
        Prompts([1], [2], [3], [4]),
        prompt(3, 3),
    )
    one = scheduler(first, second, third)
    one.plan()
    assert one.running == [first]
    assert list(one.waiting) == [second, third]


def test_a_task_with_more_sequences_than_the_limit_runs_alone() -> None:
    large = Prompts(*([number] for number in range(6)))
    one = scheduler(large, prompt(9, 3))
    one.plan()
    assert one.running == [large]


def test_a_task_waits_for_room_in_the_cache() -> None:
    first, large = prompt(1, 90), prompt(2, 8 * BLOCK_TOKENS)
    one = scheduler(first)
    one.plan()
    one.waiting.append(large)
    one.plan()
    assert one.running == [first]
    one.remove(first)
    one.plan()
    assert one.running == [large]


def test_running_tasks_keep_a_spare_block_each() -> None:
    """Two blocks of the first and one spare; those of the second, and one to continue."""
    for count, blocks, admitted in (
        (BLOCK_TOKENS - 1, 4, 1),
        (BLOCK_TOKENS - 1, 5, 2),
        (BLOCK_TOKENS, 5, 1),
        (BLOCK_TOKENS, 6, 2),
    ):
        one = scheduler(prompt(1, BLOCK_TOKENS + 2), blocks=blocks)
        one.plan()
        one.waiting.append(prompt(2, count))
        one.plan()
        assert len(one.running) == admitted, (count, blocks)


def test_equal_prompts_wait_until_the_first_is_read_and_others_pass() -> None:
    text = [*range(3 * BLOCK_TOKENS + 1)]
    first, second, other = Prompts(text), Prompts(text), prompt(7, 5)
    one = scheduler(first, second, other, reuse=Reuse.ALL)
    plan = one.plan()
    assert one.running == [first, other]
    assert list(one.waiting) == [second]
    while first.sequences[0].pending:
        one.settle(plan)
        plan = one.plan()
    one.settle(plan)
    one.plan()
    assert second in one.running
    assert one.reused_tokens == 3 * BLOCK_TOKENS


@pytest.mark.parametrize(
    ("running", "waiting", "waits"),
    [
        (BLOCK_TOKENS + 1, 2 * BLOCK_TOKENS + 5, True),
        (BLOCK_TOKENS, 2 * BLOCK_TOKENS + 5, False),
        (2 * BLOCK_TOKENS + 5, BLOCK_TOKENS + 1, True),
        (2 * BLOCK_TOKENS + 5, BLOCK_TOKENS, False),
    ],
)
def test_a_prompt_waits_for_full_blocks_before_its_last_token(
    running: int, waiting: int, waits: bool
) -> None:
    text = [*range(3 * BLOCK_TOKENS)]
    first, second = Prompts(text[:running]), Prompts(text[:waiting])
    one = scheduler(first, second, reuse=Reuse.ALL)
    one.plan()
    assert (second in one.waiting) == waits


def test_a_prompt_waits_for_as_much_as_it_has_in_common() -> None:
    text = [*range(3 * BLOCK_TOKENS)]
    other = [*text]
    other[2 * BLOCK_TOKENS - 1] = -1
    one = scheduler(Prompts(text), Prompts(other), blocks=20, reuse=Reuse.ALL)
    plan = one.plan()
    assert len(one.running) == 1
    one.settle(plan)
    one.plan()
    assert len(one.running) == 2, "the first run is there, and no other is the same"


def test_a_prompt_does_not_wait_for_what_the_cache_has() -> None:
    text = [*range(BLOCK_TOKENS)]
    known, first, second = (Prompts([*text, *[last] * 40]) for last in (7, 8, 9))
    one = scheduler(known, reuse=Reuse.ALL)
    one.settle(one.plan())
    one.remove(known)
    one.waiting.extend([first, second])
    one.plan()
    assert one.running == [first, second]


def test_who_would_not_reuse_it_does_not_wait() -> None:
    text = np.arange(3 * BLOCK_TOKENS, dtype=np.int32)
    several, alone, encoded = Prompts([*text], [*text]), Prompts([*text]), Prompts([*text])
    alone.sequences = [TokenSequence(text, reuse=False)]
    encoded.sequences = [TokenSequence(text, encoded=True)]
    for second in (several, alone, encoded):
        one = scheduler(Prompts([*text]), second, blocks=40, reuse=Reuse.ALL)
        one.plan()
        assert second in one.running
    second = Prompts([*text])
    one = scheduler(Prompts([*text]), second, blocks=40, reuse=Reuse.NONE)
    one.plan()
    assert second in one.running


def test_no_more_prompts_are_held_than_there_are_places() -> None:
    tasks = [Prompts([*range(2 * BLOCK_TOKENS)]) for _ in range(5)]
    one = scheduler(*tasks, blocks=40, reuse=Reuse.ALL)
    one.plan()
    assert one.running == [tasks[0], tasks[4]]
    assert list(one.waiting) == tasks[1:4]


def test_prompts_share_a_step_fairly_and_the_oldest_gets_the_rest() -> None:
    one = scheduler(prompt(1, 100), prompt(2, 100))
    assert counts(one.plan()) == [45, 45]
    one = scheduler(prompt(1, 100), prompt(2, 10))
    assert counts(one.plan()) == [80, 10]


def test_generated_tokens_share_a_step_fairly_and_the_oldest_gets_the_rest() -> None:
    tasks = [prompt(number, 3) for number in range(4)]
    one = scheduler(*tasks)
    one.settle(one.plan())
    for task in tasks:
        task.sequences[0].extend([5, 6, 7], rows=3)
    assert [share.count for share in one.plan().generation] == [3, 1, 1, 1]


def test_prompts_that_an_encoder_reads_run_whole() -> None:
    """The oldest in any case, the others if they fit."""
    for lengths, expected in (
        ((100, 30, 10), [100]),
        ((60, 40, 30), [60, 30]),
        ((60, 20, 11, 10), [60, 20, 10]),
    ):
        tasks = [prompt(number, length) for number, length in enumerate(lengths)]
        one = scheduler(*tasks, blocks=40, whole_prompts=True)
        assert counts(one.plan()) == expected


def test_a_fair_part_is_at_least_a_block() -> None:
    one = scheduler(*(prompt(number, 60) for number in range(4)))
    assert counts(one.plan()) == [BLOCK_TOKENS, BLOCK_TOKENS, 90 - 2 * BLOCK_TOKENS]


def test_a_short_prompt_need_not_wait_for_many_long_ones() -> None:
    """Beside decode, with the chunks of a GPU; long prompts go on, the oldest ones first."""
    for long_prompts in (3, 4, 7, 12):
        lengths = [400] * long_prompts + [40]
        tasks = [prompt(number, length) for number, length in enumerate(lengths)]
        one = scheduler(*tasks, blocks=400, running=20, prompt_tokens=256)
        plan = one.plan()
        assert plan.prompt[-1].task is tasks[-1]
        assert counts(plan)[-1] == 40
        assert sum(counts(plan)) == 256
        assert plan.prompt[0].task is tasks[0]
        assert min(counts(plan)[:-2]) >= 2 * BLOCK_TOKENS


def test_many_short_prompts_do_not_stop_a_long_one() -> None:
    tasks = [prompt(0, 500), *(prompt(number, 30) for number in range(1, 16))]
    one = scheduler(*tasks, blocks=400, running=20, prompt_tokens=240)
    assert counts(one.plan()) == [64, 30, 30, 30, 30, 30, 26]


def test_prompts_are_cut_at_the_ends_of_runs_if_kernels_begin_there() -> None:
    """A prompt whose share reaches no end waits, unless nobody would run."""
    one = scheduler(prompt(1, 100), prompt(2, 100), whole_runs=True)
    assert counts(one.plan()) == [BLOCK_TOKENS, BLOCK_TOKENS]
    one = scheduler(*(prompt(number, 60) for number in range(4)), whole_runs=True)
    assert counts(one.plan()) == [BLOCK_TOKENS, BLOCK_TOKENS]
    assert counts(one.plan()) == [28, 28, BLOCK_TOKENS]
    one = scheduler(prompt(1, 60), prompt(2, 60), prompt_tokens=20, whole_runs=True)
    assert [share.end for share in one.plan().prompt] == [20]
    assert [share.end for share in one.plan().prompt] == [BLOCK_TOKENS]


def test_prompts_get_a_chunk_beside_decode() -> None:
    writing, reading = prompt(1, 3), prompt(2, 100)
    one = scheduler(writing)
    one.settle(one.plan())
    writing.sequences[0].extend([5])
    one.waiting.append(reading)
    plan = one.plan()
    assert [share.task for share in plan.generation] == [writing]
    assert counts(plan) == [40]


def test_rows_of_a_step_are_limited() -> None:
    task = prompt(1, 30)
    task.sequences[0] = TokenSequence(np.arange(30, dtype=np.int32), rows_from=0)
    one = scheduler(task)
    (share,) = one.plan().prompt
    assert (share.count, share.rows) == (20, 20)
    (share,) = one.plan().prompt
    assert (share.start, share.end, share.rows) == (20, 30, 10)


def test_tokens_before_the_first_row_are_not_limited() -> None:
    task = prompt(1, 100)
    task.sequences[0] = TokenSequence(np.arange(100, dtype=np.int32), rows_from=50)
    one = scheduler(task)
    found = [(share.end, share.rows) for _ in range(3) for share in one.plan().prompt]
    assert found == [(70, 20), (90, 20), (100, 10)]
    one = scheduler(prompt(1, 100))
    found = [(share.end, share.rows) for _ in range(2) for share in one.plan().prompt]
    assert found == [(90, 0), (100, 1)]


def test_sequences_share_the_rows_of_a_step() -> None:
    tasks = [prompt(1, 100), prompt(2, 15), prompt(3, 15)]
    for task in tasks[1:]:
        task.sequences[0] = TokenSequence(task.sequences[0].tokens, rows_from=0)
    plan = scheduler(*tasks).plan()
    assert [(share.count, share.rows) for share in plan.prompt] == [(60, 0), (15, 15), (5, 5)]


def test_the_last_task_is_preempted_and_comes_back_first() -> None:
    first, second, third = prompt(1, BLOCK_TOKENS), prompt(2, 3), prompt(3, 3)
    one = scheduler(first, second, blocks=4, running=2)
    one.settle(one.plan())
    assert one.running == [first, second]
    one.waiting.append(third)
    first.sequences[0].extend([7] * (3 * BLOCK_TOKENS))
    second.sequences[0].extend([8])
    plan = one.plan()
    while one.preemptions == 0:
        plan = one.plan()
    assert one.running == [first]
    assert list(one.waiting) == [second, third]
    assert all(share.task is first for share in plan.shares())
    assert one.preemptions == 1


def test_the_least_urgent_is_preempted_first() -> None:
    """It comes back before those of its priority, and what it had in the step is dropped."""
    tasks = [prompt(number, 3) for number in range(5)]
    least, large, last, waiting, waiting_too = tasks
    least.priority = waiting_too.priority = 5
    one = scheduler(least, large, last, blocks=5, running=3, generation_tokens=200, rows=200)
    one.settle(one.plan())
    one.waiting.extend([waiting, waiting_too])
    least.sequences[0].extend([1])
    large.sequences[0].extend([7] * (4 * BLOCK_TOKENS))
    last.sequences[0].extend([1])
    plan = one.plan()
    assert [(share.task, share.count) for share in plan.shares()] == [(large, 4 * BLOCK_TOKENS)]
    assert one.running == [large]
    assert list(one.waiting) == [last, waiting, least, waiting_too]
    assert one.preemptions == 2


def test_a_task_that_fails_has_nothing_in_the_step() -> None:
    one = scheduler(Prompts([1] * BLOCK_TOKENS, [2] * BLOCK_TOKENS), blocks=1)
    plan = one.plan()
    assert len(plan.failed) == 1
    assert list(plan.shares()) == []


def test_a_task_that_does_not_fit_alone_fails() -> None:
    large = prompt(1, 3 * BLOCK_TOKENS)
    one = scheduler(large, blocks=2)
    plan = one.plan()
    while not plan.failed:
        plan = one.plan()
    assert [task for task, _ in plan.failed] == [large]
    assert one.running == []
    assert one.cache.pool.free(0) == 2


def test_no_other_task_can_join_if_none_waits_or_there_is_no_place() -> None:
    one = scheduler(*(prompt(number, 3) for number in range(5)))
    assert not one.is_steady
    one.plan()
    assert one.is_steady
    one.remove(one.running[0])
    assert not one.is_steady
    one.waiting.clear()
    assert one.is_steady


def test_no_other_task_can_join_if_the_cache_has_no_room_for_the_first_that_waits() -> None:
    """There are places, and the second that waits would fit: it does not overtake the first."""
    small, running, large = prompt(1, 3), prompt(2, 90), prompt(3, 8 * BLOCK_TOKENS)
    one = scheduler(small, running)
    one.plan()
    assert one.is_steady
    one.add(large)
    one.add(prompt(4, 3))
    one.plan()
    assert one.running == [small, running]
    assert one.is_steady
    one.waiting.rotate()
    assert not one.is_steady, "the small one is the first"
    one.waiting.rotate(-1)
    one.remove(small)
    assert one.is_steady, "there is still no room"
    one.remove(running)
    assert not one.is_steady, "nobody runs: the first is admitted in any case"
