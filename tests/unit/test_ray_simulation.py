"""The simulation of `benchmarks/simulate_ray.py`, with step times that can be added up by hand."""

import json
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("starlette", reason="the router's modules need ingot-llm[server]")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module("simulate_ray")


@pytest.fixture
def times(simulation: Any) -> Any:
    """A second for a step of decode, whatever its size, and a hundredth for a prompt token."""
    return simulation.StepTimes({1: 1.0, 2: 1.0}, {16: 0.16, 512: 5.12}, 0.0, 0.0)


def test_one_request_takes_the_sum_of_its_steps(simulation: Any, times: Any) -> None:
    engine = simulation.Engine(times, cache_blocks=100)
    keys = tuple(range(32))
    turn = simulation.Turn(user=0, at=2.0, prompt=1024, answer=4, keys=keys)
    engine.take(turn)
    while engine.load:
        engine.plan()
        engine.step() if turn.left else engine.advance(100.0)
    assert turn.first == pytest.approx(2 + 10.24)  # two steps of 512 prompt tokens
    assert turn.end == pytest.approx(turn.first + 3)
    # The same prompt again is in the cache; one token is always run.
    again = replace(turn, at=turn.end, said=0, first=0.0, end=0.0)
    engine.take(again)
    assert (again.left, engine.asked, engine.found) == (1, 64, 32)


def test_a_small_cache_forgets_the_oldest_blocks(simulation: Any, times: Any) -> None:
    engine = simulation.Engine(times, cache_blocks=4)

    def found(*keys: int) -> int:
        before: int = engine.found
        engine.take(simulation.Turn(0, 0.0, 32 * len(keys), 1, keys))
        return int(engine.found - before)

    assert [found(1, 2, 3), found(1, 2, 3), found(7, 8, 9), found(1, 2, 3)] == [0, 3, 0, 1]


def test_longer_contexts_take_longer(simulation: Any) -> None:
    times = simulation.StepTimes({1: 1.0, 2: 1.0}, {16: 0.0, 512: 0.0}, 0.5, 0.0)
    engine = simulation.Engine(times, cache_blocks=0)
    turn = simulation.Turn(0, 1.0, 10, 4, ())
    engine.take(turn)
    engine.plan()
    engine.step()
    engine.advance(1000.0)
    # Steps of one second, and half a second for each of 11, 12 and 13 tokens.
    assert turn.end - turn.first == pytest.approx(3 + 0.5 * (11 + 12 + 13))


def test_users_of_several_replicas(simulation: Any, times: Any) -> None:
    users = simulation.Users(24, systems=4, turns=3, think=40.0)
    one, two, four = (simulation.simulate(times, users, count, 4096) for count in (1, 2, 4))
    assert one.requests == two.requests == four.requests == 24 * 3
    assert one.largest_share == 1.0
    assert one.first_token_median > two.first_token_median > four.first_token_median
    assert one.tokens_per_second < two.tokens_per_second < four.tokens_per_second
    assert one.hit_rate >= four.hit_rate > 0.9 * one.hit_rate
    assert four.largest_share <= 1.5
    again = simulation.simulate(times, users, 4, 4096)
    measured = {"router_milliseconds": 0.0, "front_cores": 0.0}  # of this machine
    assert replace(again, **measured) == replace(four, **measured)


def test_what_is_measured_is_read_again(simulation: Any, times: Any, tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    path.write_text(json.dumps(asdict(times)))
    assert simulation.read_times(path) == times


def test_differences(simulation: Any, times: Any) -> None:
    found = simulation.simulate(times, simulation.Users(4, turns=1), 1, 100)
    slower = replace(found, tokens_per_second=found.tokens_per_second * 0.75)
    off = simulation.differences(found, slower)
    assert off["tokens_per_second"] == pytest.approx(-0.25)
    assert off["first_token_median"] == 0
