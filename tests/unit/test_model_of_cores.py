"""`benchmarks/model_of_cores.py`: what it finds in curves whose numbers are known."""

import json
import math
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
THREADS = (1, 2, 4, 8, 16)
WORK = {1: 0.02, 8: 0.16, 32: 0.3, 0: 3.0}  # seconds of one thread, by sequences; 0: a prompt


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module("model_of_cores")


@pytest.fixture
def truth(cores: Any) -> Any:
    """Sixteen cores that read 10 GB/s each, and 100 together."""
    tests = {cores.Test(count, count or 512): work for count, work in WORK.items()}
    network = cores.Network(1e9, {1536: 3e8, 8960: 5e8, 151936: 2e8}, 200)
    return cores.CoreModel(cores.Machine(10e9, 100e9, 16), network, 0.9, 2e-7, tests)


def curve(truth: Any, noise: float = 0.0) -> dict[str, Any]:
    """What `bench_sequences.py` would write on that machine."""
    random = Random(1)
    return {
        "model": "made-up",
        "isa": "avx2",
        "bytes": truth.network.bytes,
        "rows": {str(rows): share for rows, share in truth.network.rows.items()},
        "operations": truth.network.operations,
        "points": [
            {
                "threads": threads,
                "sequences": test.sequences,
                "tokens": test.tokens,
                "rates": {
                    "Ingot": test.tokens
                    / truth.seconds(test, threads)
                    * math.exp(random.gauss(0, noise))
                },
                "ratios": {},
                "read": truth.machine.read(threads),
            }
            for test in truth.work
            for threads in THREADS
        ],
    }


def fitted(cores: Any, curve: dict[str, Any]) -> Any:
    found = cores.machine_of(curve, None)
    return cores.CoreModel.fit(cores.points_of(curve), found, cores.network_of(curve))


def test_the_numbers_of_a_curve_are_found_again(cores: Any, truth: Any) -> None:
    model = fitted(cores, curve(truth))
    assert model.machine == truth.machine
    assert model.read_share == pytest.approx(0.9, rel=0.01)
    assert model.barrier == pytest.approx(2e-7, rel=0.02)
    for test, work in truth.work.items():
        if test.sequences != 1:  # decode waits for memory: its arithmetic shows nowhere
            assert model.work[test] == pytest.approx(work, rel=0.01)


@pytest.mark.parametrize(("noise", "error"), [(0.0, 0.01), (0.01, 0.25)])
def test_64_cores_are_predicted_from_16(cores: Any, truth: Any, noise: float, error: float) -> None:
    """On one socket of the same memory, and on two of twice the bandwidth."""
    model = fitted(cores, curve(truth, noise))
    for machine in (cores.Machine(10e9, 100e9, 64), cores.Machine(10e9, 200e9, 32)):
        for test in truth.work:
            expected = truth.on(machine).seconds(test, 64)
            assert model.on(machine).seconds(test, 64) == pytest.approx(expected, rel=error)


def test_threads_fill_one_socket_after_the_other(cores: Any) -> None:
    machine = cores.Machine(10e9, 50e9, 8)
    assert [machine.read(threads) / 1e9 for threads in (1, 4, 8, 9, 16)] == [10, 40, 50, 60, 100]


def test_the_last_round_of_pieces_leaves_threads_idle(cores: Any) -> None:
    network = cores.Network(1.0, {96: 1.0}, 1)
    few, more, prompt = cores.Test(8, 8), cores.Test(9, 9), cores.Test(0, 512)
    assert network.rounding(few, 6) == 1  # six pieces of 16 rows
    assert network.rounding(few, 4) == pytest.approx(8 / 6)
    assert network.rounding(few, 12) == 2
    assert network.rounding(more, 4) == 2  # two pieces of 48
    assert network.rounding(prompt, 16) == 1  # two of 64 rows by eight of 64 columns


def test_parts_say_where_the_time_goes(cores: Any, truth: Any) -> None:
    decode, prompt = cores.Test(1, 1), cores.Test(0, 512)
    assert [*truth.parts(decode, 16)] == ["memory", "rounding", "barriers"]
    assert [*truth.parts(prompt, 16)] == ["arithmetic", "rounding", "barriers"]
    assert truth.parts(decode, 16)["barriers"] == pytest.approx(200 * 2e-7 * 15)


def test_the_program_prints_fit_and_prediction(cores: Any, truth: Any, tmp_path: Path) -> None:
    (tmp_path / "curves.json").write_text(json.dumps([curve(truth)]))
    command = [sys.executable, BENCHMARKS / "model_of_cores.py", tmp_path / "curves.json"]
    more = ["--cores", "32", "--sockets", "2", "--socket-read", "150"]
    said = subprocess.run([*command, *more], capture_output=True, text=True, check=True).stdout
    assert "one thread reads 10.0 GB/s, a socket 100.0; kernels reach 90% of it" in said
    assert said.count("+0%") + said.count("-0%") == len(THREADS) * len(WORK)
    assert "predicted for 32 cores on 2 socket(s) of 150 GB/s each" in said
    machine = cores.Machine(10e9, 150e9, 16)
    rate = 512 / truth.on(machine).seconds(cores.Test(0, 512), 32)
    assert f"{rate:.0f}"[:3] in said.splitlines()[-1]
