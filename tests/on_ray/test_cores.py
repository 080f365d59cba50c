"""Which cores a replica keeps to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ingot.errors import ConfigError
from ingot.ray.cores import claim, core_sets, spread


def test_sets_stay_within_numa_nodes() -> None:
    nodes = [frozenset(range(6)), frozenset(range(6, 12))]
    assert core_sets(range(12), nodes, 4) == [frozenset({0, 1, 2, 3}), frozenset({6, 7, 8, 9})]
    assert core_sets(range(12), nodes, 8) == [frozenset(range(8))]  # no node is that large
    assert core_sets([1, 2, 7], nodes, 1) == [frozenset({1}), frozenset({2}), frozenset({7})]
    assert core_sets(range(4), [], 2) == [frozenset({0, 1}), frozenset({2, 3})]
    assert core_sets(range(2), nodes, 3) == []


def test_sets_are_of_different_physical_cores_first() -> None:
    pairs = [frozenset({0, 1}), frozenset({2, 3}), frozenset({4, 5})]
    assert spread(set(range(7)), pairs) == [0, 2, 4, 6, 1, 3, 5]
    assert spread({1, 4, 5}, pairs) == [1, 4, 5]
    assert spread({3, 2}, []) == [2, 3]
    nodes = [frozenset(range(4)), frozenset(range(4, 6))]
    sets = core_sets(spread(set(range(6)), pairs), nodes, 2)
    assert sets == [frozenset({0, 2}), frozenset({1, 3}), frozenset({4, 5})]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux pins threads")
def test_a_set_has_one_owner(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    claimed = [claim(1, tmp_path) for _ in before]
    assert frozenset.union(*(each.cores for each in claimed)) == before
    with pytest.raises(ConfigError, match="other replicas have all of them"):
        claim(1, tmp_path)
    claimed[0].release()
    again = claim(1, tmp_path)
    assert again.cores == claimed[0].cores
    code = "import os; print(len(os.sched_getaffinity(0)))"
    try:
        again.keep_to()
        assert subprocess.check_output([sys.executable, "-c", code]) == b"1\n"
    finally:
        os.sched_setaffinity(0, before)
        for each in [*claimed, again]:
            each.release()
