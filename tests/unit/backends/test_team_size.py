"""The number of decode threads follows the machine."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.backends.cpu.team_size import TeamSize

Machine = Callable[[int], tuple[float, float]]  # threads -> duration of a step, time of waiting


def quiet(threads: int) -> tuple[float, float]:
    return 1 / threads, 0.02 / threads


def shared(free: int) -> Machine:
    """Threads beyond the free cores hold up all others at every operation."""

    def step(threads: int) -> tuple[float, float]:
        held_up = 2.0 * max(0, threads - free)
        return 1 / threads + held_up, held_up

    return step


def decode(team: TeamSize, machine: Machine, steps: int, tokens: int = 1) -> list[int]:
    """The sizes of so many steps."""
    sizes = []
    for _ in range(steps):
        sizes.append(team.size)
        team.report(tokens, *machine(team.size))
    return sizes


def test_a_quiet_machine_keeps_all_threads() -> None:
    assert set(decode(TeamSize(16), quiet, 10_000)) == {16}


@pytest.mark.parametrize(("most", "free"), [(16, 7), (16, 15), (2, 1), (3, 1), (64, 40)])
def test_threads_without_cores_are_left_out(most: int, free: int) -> None:
    sizes = decode(TeamSize(most), shared(free), 2000)
    assert sizes[0] == most
    assert max(sizes[200:], key=sizes[200:].count) <= free
    assert sum(shared(free)(size)[0] for size in sizes) < 0.45 * 2000 * shared(free)(most)[0]


def test_threads_come_back_when_cores_are_free_again() -> None:
    team = TeamSize(16)
    decode(team, shared(4), 500)
    assert team.size <= 4
    assert decode(team, quiet, 6000)[-1] == 16


def test_a_smaller_team_that_is_slower_is_not_kept() -> None:
    """Much waiting alone says little: a tiny model's steps are mostly barriers."""
    sizes = decode(TeamSize(8), lambda threads: (1 / threads, 0.5 / threads), 5000)
    assert sizes[-1] == 8
    assert sizes.count(6) < 100


def test_a_trial_that_clearly_loses_ends_early() -> None:
    team = TeamSize(16)
    decode(team, shared(4), 500)
    settled = team.size
    sizes = decode(team, shared(settled), 2000)
    trials = "".join("t" if size > settled else " " for size in sizes).split()
    assert trials
    assert max(map(len, trials)) == 2


def test_steps_of_other_batches_are_not_compared() -> None:
    """More tokens take longer, which says nothing about threads."""
    team = TeamSize(4)
    decode(team, shared(2), 17)
    assert team.size == 3  # a trial
    decode(team, lambda _: (0.0001, 0.0), 1, tokens=5)
    assert team.size == 4
    decode(team, lambda _: (0.0001, 0.0), 100, tokens=5)
    assert team.size == 4


def test_one_thread_stays() -> None:
    assert set(decode(TeamSize(1), lambda _: (1.0, 0.9), 1000)) == {1}


@given(
    most=st.integers(1, 40),
    steps=st.lists(
        st.tuples(st.integers(1, 3), st.floats(1e-6, 10), st.floats(0, 1)), max_size=400
    ),
    seed=st.integers(0, 9),
)
def test_the_size_is_always_possible(
    most: int, steps: list[tuple[int, float, float]], seed: int
) -> None:
    team, rng = TeamSize(most), random.Random(seed)
    for tokens, seconds, share in steps:
        team.report(1 if rng.random() < 0.98 else tokens, seconds, share * seconds)
        assert 1 <= team.size <= most
