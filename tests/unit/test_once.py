"""A property that one thread computes while others wait."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest

from ingot.once import once


class Made:
    """Counts what is computed."""

    def __init__(self) -> None:
        self.count = 0
        self.going_on = Event()
        self.fails = False

    @once
    def slow(self) -> object:
        """What takes long."""
        self.count += 1
        self.going_on.wait(0.2)
        if self.fails:
            raise ValueError("not now")
        return object()

    @once
    def both(self) -> tuple[object, object]:
        return self.slow, self.slow


class Later(Made):
    @once
    def slow(self) -> object:
        return [super().slow]


def test_many_threads_get_the_same() -> None:
    made, start = Made(), Barrier(8)

    def ask() -> object:
        start.wait()
        return made.slow

    with ThreadPoolExecutor(8) as pool:
        found = {*pool.map(lambda _: ask(), range(8))}
    assert len(found) == made.count == 1
    assert made.slow in found


def test_each_object_has_its_own() -> None:
    one, other = Made(), Made()
    assert one.slow is not other.slow
    assert one.both == (one.slow, one.slow)
    assert one.count == 1


def test_an_error_is_not_kept() -> None:
    made = Made()
    made.fails = True
    with pytest.raises(ValueError, match="not now"):
        _ = made.slow
    made.fails = False
    assert made.slow is made.slow
    assert made.count == 2


def test_that_of_a_base_class() -> None:
    made = Later()
    assert made.slow is made.slow
    assert made.count == 1


def test_what_a_class_says_of_it() -> None:
    assert isinstance(Made.slow, once)
    assert Made.slow.__doc__ == "What takes long."
