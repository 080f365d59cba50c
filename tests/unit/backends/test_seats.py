"""Which seats threads get, that they keep to them, and that results do not change."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event, get_native_id
from time import monotonic

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot import LLM
from ingot.backends.cpu.seats import Core, Numa, Seat, seats, seats_here
from ingot.backends.precision import Precision
from ingot.errors import ConfigError
from ingot.gguf import GgmlType, GgufLoader
from ingot.models import build_graph
from models.tiny_models import VOCABULARY, Fixture
from run_batches import Runner

TWO_SOCKETS = [Core(node, (4 * node + i, 8 + 4 * node + i)) for node in (0, 1) for i in range(4)]
ONE_SOCKET = [Core(0, (i,)) for i in range(4)]


def test_one_node_leaves_threads_to_the_system() -> None:
    for numa in Numa:
        assert seats(4, numa, ONE_SOCKET, pin=False) == []


def test_threads_of_one_node_are_left_to_the_system_by_default() -> None:
    assert seats(4, Numa.AUTO, TWO_SOCKETS, pin=False) == []
    assert seats(8, Numa.OFF, TWO_SOCKETS, pin=False) == []


@pytest.mark.parametrize("numa", [Numa.AUTO, Numa.SPLIT, Numa.REPLICATE])
def test_threads_of_several_nodes_keep_to_theirs(numa: Numa) -> None:
    found = seats(6, numa, TWO_SOCKETS, pin=False)
    assert [seat.node for seat in found] == [0, 0, 0, 1, 1, 1]
    assert {seat.cpus for seat in found[:3]} == {(0, 8, 1, 9, 2, 10, 3, 11)}
    assert {seat.cpus for seat in found[3:]} == {(4, 12, 5, 13, 6, 14, 7, 15)}
    replicas = [seat.replica for seat in found]
    assert replicas == ([0, 0, 0, 1, 1, 1] if numa is Numa.REPLICATE else [0] * 6)


def test_pinned_threads_have_a_core_each() -> None:
    assert seats(2, Numa.AUTO, ONE_SOCKET, pin=True) == [Seat((0,), 0), Seat((1,), 0)]
    spread = seats(8, Numa.AUTO, TWO_SOCKETS, pin=True)
    assert [seat.cpus for seat in spread] == [(cpu,) for cpu in range(8)]
    with pytest.raises(ConfigError, match="5 threads cannot be pinned to 4 cores"):
        seats(5, Numa.AUTO, ONE_SOCKET, pin=True)
    with pytest.raises(ConfigError, match="does not tell its cores"):
        seats(1, Numa.AUTO, [], pin=True)


def test_nodes_without_a_thread_have_no_replica() -> None:
    sizes = (10, 1, 10)
    cores = [Core(n, (10 * n + i,)) for n, size in enumerate(sizes) for i in range(size)]
    found = seats(3, Numa.REPLICATE, cores, pin=False)
    assert {(seat.node, seat.replica) for seat in found} == {(0, 0), (2, 1)}


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.integers(1, 24),
    st.sampled_from(Numa),
    st.booleans(),
)
def test_all_threads_or_none(sizes: list[int], threads: int, numa: Numa, pin: bool) -> None:
    cores = [Core(n, (10 * n + i,)) for n, size in enumerate(sizes) for i in range(size)]
    if pin and threads > len(cores):
        return
    found = seats(threads, numa, cores, pin=pin)
    assert len(found) in (0, threads)
    assert found or not pin
    if pin:
        assert len({seat.cpus for seat in found}) == threads
    assert [seat.node for seat in found] == sorted(seat.node for seat in found)
    assert {seat.replica for seat in found} == set(range(len({seat.replica for seat in found})))
    where = {cpu: core.node for core in cores for cpu in core.cpus}
    assert all(where[cpu] == seat.node for seat in found for cpu in seat.cpus)


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Fixture.load("qwen2").write(
        tmp_path_factory.mktemp("models") / "model.gguf", GgmlType.Q8_0
    )


def test_replicas_and_rows_of_nodes_give_the_same_bits(model_file: Path) -> None:
    ids = np.random.default_rng(0).integers(0, VOCABULARY, 40).tolist()
    with GgufLoader(model_file) as file:
        graph = build_graph(file)
        make = partial(Runner, graph, file, precision=Precision.FAST, positions=64, threads=2)
        plain = make()
        expected = plain.run(ids, generated=10)
        copied = plain.backend.copied_bytes
        for replicas in (1, 2):
            places = [Seat((), node, node % replicas) for node in (0, 1)]
            runner = make(seats=places)
            assert runner.backend.copied_bytes == replicas * copied > 0
            while runner.backend.copy_next():
                pass
            np.testing.assert_array_equal(runner.run(ids, generated=10), expected)


def tasks() -> set[int]:
    """The threads of this process."""
    return {int(folder.name) for folder in Path("/proc/self/task").iterdir()}


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux keeps threads to CPUs")
def test_threads_keep_to_their_cpus(model_file: Path) -> None:
    before = os.sched_getaffinity(0)
    cpus = sorted(before)[-1:]
    known = tasks()
    try:
        with GgufLoader(model_file) as file:
            places = [Seat(tuple(cpus), 0)] * 2
            runner = Runner(build_graph(file), file, seats=places, positions=8, threads=2)
            runner.run([1, 2, 3])
            new = tasks() - known
            assert [sorted(os.sched_getaffinity(task)) for task in new] == [cpus]
            assert os.sched_getaffinity(0) == before, "what this thread starts may run anywhere"
            seen = Event()
            with ThreadPoolExecutor(1) as pool:
                watching = pool.submit(_wait_until_it_sits, get_native_id(), cpus, seen)
                while not (seen.is_set() or watching.done()):
                    runner.run([1, 2, 3], generated=2)
                assert watching.result(), "the thread that runs steps keeps to its seat, too"
    finally:
        os.sched_setaffinity(0, before)


def _wait_until_it_sits(thread: int, cpus: list[int], seen: Event) -> bool:
    end = monotonic() + 60
    while monotonic() < end:
        if sorted(os.sched_getaffinity(thread)) == cpus:
            seen.set()
            return True
    return False


def test_seats_of_this_machine() -> None:
    assert seats_here(1, Numa.OFF, pin=False) == []
    assert len(seats_here(1, Numa.AUTO, pin=True)) == 1


@pytest.mark.skipif(not Path("/proc/self/numa_maps").exists(), reason="the system has no NUMA")
def test_copies_are_asked_for_from_a_node(model_file: Path) -> None:
    def preferred() -> int:
        return Path("/proc/self/numa_maps").read_text().count("prefer")

    with GgufLoader(model_file) as file:
        graph, before = build_graph(file), preferred()
        runner = Runner(
            graph, file, precision=Precision.FAST, seats=[Seat((), 0)] * 2, threads=2, positions=8
        )
        while runner.backend.copy_next():
            pass
        assert preferred() > before


def test_options_of_an_engine(model_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    allowed = os.sched_getaffinity(0)
    with LLM(model_file, threads=1, pin_threads=True) as pinned, LLM(model_file, threads=1) as free:
        texts = [
            llm.generate("ab", max_tokens=4, temperature=0).token_ids for llm in (pinned, free)
        ]
    assert texts[0] == texts[1]
    assert os.sched_getaffinity(0) == allowed, "the caller's thread runs no steps"
    with LLM(model_file, threads=1, numa="replicate", weights="map"):
        pass
    assert "numa='replicate' places no weights" in caplog.text
    with pytest.raises(ConfigError, match="numa is 'all'"):
        LLM(model_file, numa="all")
    with pytest.raises(ConfigError, match="cannot be pinned"):
        LLM(model_file, threads=len(allowed) + 1, pin_threads=True)
