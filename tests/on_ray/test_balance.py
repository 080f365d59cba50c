"""Which replica gets a request: shares of the load, and what caches find, without Ray."""

from collections import Counter, OrderedDict
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.ray.balance import Balance
from ingot.ray.call import BLOCK, prefix_keys


class Cache:
    """A prefix cache like an engine's: blocks of a text, the longest unused are dropped first."""

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._held: OrderedDict[int, None] = OrderedDict()
        self.asked = self.found = 0

    def read(self, keys: tuple[int, ...]) -> None:
        self.asked += len(keys)
        for count, key in enumerate(keys):
            if key not in self._held:
                break
            self.found = self.found + 1
            assert count < len(keys)
        for key in reversed(keys):
            self._held[key] = None
            self._held.move_to_end(key)
        while len(self._held) > self._blocks:
            self._held.popitem(last=False)

    @property
    def rate(self) -> float:
        return self.found / self.asked


def conversations(random: Random, users: int, turns: int, systems: int) -> list[tuple[int, ...]]:
    """Prompts of users who talk under a few system prompts, each turn with all before it."""
    texts = {
        user: f"system {min(int(random.paretovariate(1)), systems)} ".encode() * 60
        for user in range(users)
    }
    order = [user for user in range(users) for _ in range(turns)]
    random.shuffle(order)
    prompts = []
    for user in order:
        texts[user] += random.randbytes(random.randint(BLOCK, 4 * BLOCK))
        prompts.append(prefix_keys(texts[user]))
    return prompts


@pytest.mark.parametrize("seed", range(5))
def test_shared_beginnings_are_found_as_often_as_in_one_engine(seed: int) -> None:
    prompts = conversations(Random(seed), users=120, turns=10, systems=12)
    replicas = [f"r{number}" for number in range(4)]
    # The caches of four replicas hold as much as the one of a single engine.
    alone, caches = Cache(8000), {name: Cache(2000) for name in replicas}
    balance, got, running = Balance(), Counter[str](), dict.fromkeys(replicas, 0)
    balance.keep(set(replicas))
    ends: list[str] = []
    for keys in prompts:
        alone.read(keys)
        name = balance.rank(keys, running)[0]
        balance.took(name, keys)
        caches[name].read(keys)
        got[name] += 1
        running[name] += 1
        ends.append(name)
        if len(ends) > 24:  # as many run at once
            running[ends.pop(0)] -= 1
    found = sum(cache.found for cache in caches.values())
    asked = sum(cache.asked for cache in caches.values())
    assert found / asked >= 0.9 * alone.rate
    assert alone.rate > 0.5  # there is something to find
    assert max(got.values()) <= 1.5 * len(prompts) / 4
    # Chance finds much less: the test can tell.
    random, blind = Random(seed), {name: Cache(2000) for name in replicas}
    for keys in prompts:
        blind[random.choice(replicas)].read(keys)
    assert sum(cache.found for cache in blind.values()) / asked < 0.8 * alone.rate


@given(
    prompts=st.lists(st.integers(0, 6), min_size=1, max_size=400),
    replicas=st.integers(1, 6),
    at_once=st.integers(1, 40),
)
def test_no_replica_gets_more_than_its_share(
    prompts: list[int], replicas: int, at_once: int
) -> None:
    names = [f"r{number}" for number in range(replicas)]
    balance, got, running = Balance(), Counter[str](), dict.fromkeys(names, 0)
    balance.keep(set(names))
    ends: list[str] = []
    for prompt in prompts:
        keys = prefix_keys(bytes([prompt]) * BLOCK * 3)
        ranked = balance.rank(keys, running)
        assert sorted(ranked) == names
        balance.took(ranked[0], keys)
        got[ranked[0]] += 1
        running[ranked[0]] += 1
        ends.append(ranked[0])
        assert max(running.values()) <= 1.25 * sum(running.values()) / replicas + 4
        if len(ends) > at_once:
            running[ends.pop(0)] -= 1
    assert max(got.values()) <= 1.5 * len(prompts) / replicas + 4


def test_a_busy_replica_is_passed_over() -> None:
    balance = Balance()
    balance.keep({"a", "b"})
    keys = prefix_keys(b"x" * BLOCK)
    balance.took("a", keys)
    assert balance.rank(keys, {"a": 1, "b": 0}) == ["a", "b"]
    assert balance.rank(keys, {"a": 20, "b": 0}) == ["b", "a"]
    assert balance.rank(prefix_keys(b"y" * BLOCK), {"a": 1, "b": 0}) == ["b", "a"]
    assert balance.rank(prefix_keys(b"y" * BLOCK), {"a": 0, "b": 5}) == ["a", "b"]


def test_replicas_that_are_gone_are_forgotten() -> None:
    balance = Balance()
    balance.keep({"a", "b"})
    keys = prefix_keys(b"x" * BLOCK)
    for _ in range(100):
        balance.took("a", keys)
    balance.keep({"b", "c"})
    assert balance.rank(keys, {"b": 0, "c": 0}) == ["b", "c"]
    balance.keep({"a", "b", "c"})  # a new one of the same name has seen nothing
    balance.took("c", keys)
    assert balance.rank(keys, {"a": 0, "b": 0, "c": 0})[0] == "c"


def test_what_was_seen_has_a_limit() -> None:
    balance = Balance(most_keys=10)
    balance.keep({"a", "b"})
    old, new = prefix_keys(b"o" * BLOCK * 8), prefix_keys(b"n" * BLOCK * 8)
    balance.took("b", old)
    balance.took("b", new)
    running = {"a": 0, "b": 1}
    assert balance.rank(new, running)[0] == "b"
    assert balance.rank(old[:1], running)[0] == "a"
