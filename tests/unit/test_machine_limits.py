"""Memory and threads within what containers and cores allow, on simulated machines."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ingot import LLM, _native
from ingot import config as config_module
from ingot.cli.shared.ray_flags import RayFlags
from ingot.errors import MemoryShortageError
from ingot.gguf import GgmlType
from ingot.machine import control_groups, linux
from ingot.machine.cpu_topology import listed, numa_nodes, physical_cores
from ingot.server.catalog import Catalog
from ingot.server.options import ServedModel, ServerOptions
from tiny_llama import write_tiny_llama

GIB, HALF = 1 << 30, 1 << 29
Write = Callable[[Mapping[str, str]], Path]

MEMINFO = {"proc/meminfo": "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n"}
VERSION_2 = {
    "proc/self/cgroup": "0::/app/inner\n",
    "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
    "sys/fs/cgroup/app/memory.max": f"{4 * GIB}\n",
    "sys/fs/cgroup/app/memory.current": f"{3 * GIB}\n",
    "sys/fs/cgroup/app/memory.stat": f"anon {2 * GIB}\ninactive_file {HALF}\nactive_file {HALF}\n",
    "sys/fs/cgroup/app/inner/memory.max": "max\n",
    "sys/fs/cgroup/app/inner/memory.current": f"{3 * GIB}\n",
}
VERSION_1 = {
    "proc/self/cgroup": "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{4 * GIB}\n",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{3 * GIB}\n",
    "sys/fs/cgroup/memory/memory.stat": f"inactive_file 7\ntotal_inactive_file {HALF}\n"
    f"active_file 8\ntotal_active_file {HALF}\n",
}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes files of a machine, which Ingot then finds itself on."""

    def write(files: Mapping[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        monkeypatch.setattr(linux, "_ROOT", tmp_path)
        return tmp_path

    return write


def on_cpus(monkeypatch: pytest.MonkeyPatch, *cpus: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(cpus), raising=False)


def serving(model: Path) -> ServerOptions:
    return ServerOptions(models=(ServedModel(name="tiny", path=model),))


def siblings(*cores: str) -> dict[str, str]:
    """The files of CPUs that share cores, each core a list like `0,4` or `0-1`."""
    found = {}
    for core in cores:
        for cpu in listed(core):
            found[f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"] = f"{core}\n"
    return found | {"sys/devices/system/cpu/cpufreq/boost": "1\n"}


@pytest.mark.parametrize("files", [VERSION_2, VERSION_1], ids=["version 2", "version 1"])
def test_a_container_leaves_its_limit_without_what_it_uses_and_cannot_drop(
    machine: Write, files: dict[str, str]
) -> None:
    """Of 4 GiB it uses 3, and one of these is file cache, whether it was used lately or not."""
    root = machine(MEMINFO | files)
    assert control_groups.memory_limit(root) == 4 * GIB
    assert control_groups.memory_left(root) == linux.available_memory() == 2 * GIB


def test_the_tightest_group_counts(machine: Write) -> None:
    machine(MEMINFO | VERSION_2 | {"sys/fs/cgroup/app/inner/memory.max": f"{7 * GIB // 2}\n"})
    # The inner group tells nothing of its file cache: all of its 3 GiB are in use.
    assert linux.available_memory() == GIB // 2


def test_a_container_that_uses_more_than_its_limit_has_nothing_left(machine: Write) -> None:
    machine(MEMINFO | VERSION_2 | {"sys/fs/cgroup/app/memory.current": f"{9 * GIB}\n"})
    assert linux.available_memory() == 0


def test_a_limit_above_what_the_machine_has_changes_nothing(machine: Write) -> None:
    machine(MEMINFO | VERSION_2 | {"sys/fs/cgroup/app/memory.max": f"{64 * GIB}\n"})
    assert linux.available_memory() == 8 * GIB


def test_a_model_takes_no_more_than_the_container_has_left(machine: Write, tmp_path: Path) -> None:
    model = write_tiny_llama(tmp_path / "tiny.gguf")
    limit = "sys/fs/cgroup/app/memory.max"
    machine(MEMINFO | VERSION_2 | {limit: f"{2 * GIB + (8 << 20)}\n"})
    with LLM(model, threads=1, context=32) as llm:
        copies = llm.engine.model.copies
        untouched = llm.engine.model._cpu_backend.cache_bytes
    has_copies = _native.interleaved_rows(
        int(GgmlType.Q8_0), _native.CODES["Precision"].FAST
    )  # none on some CPUs
    assert (copies is not None) == (has_copies > 0)
    machine({limit: f"{2 * GIB + untouched}\n"})  # room for the cache, and nothing else
    with LLM(model, threads=1, context=32, cache_tokens=128) as llm:
        assert llm.engine.model.copies is None
    for weights in ("read", "lock"):
        with pytest.raises(MemoryShortageError, match=f"weights='{weights}' takes"):
            LLM(model, threads=1, context=32, cache_tokens=32, weights=weights)
    assert Catalog(serving(model))._memory == untouched


@pytest.mark.parametrize("limit", ["9223372036854771712", "-1"])
def test_no_limit_in_version_1_is_a_huge_or_negative_number(machine: Write, limit: str) -> None:
    root = machine(
        MEMINFO | VERSION_1 | {"sys/fs/cgroup/memory/memory.limit_in_bytes": f"{limit}\n"}
    )
    assert control_groups.memory_left(root) is None
    assert linux.available_memory() == 8 * GIB


def test_a_machine_without_control_groups(machine: Write) -> None:
    root = machine(MEMINFO)
    assert control_groups.memory_limit(root) is None
    assert linux.available_memory() == 8 * GIB


@pytest.mark.parametrize(
    ("cores", "cpus", "threads"),
    [
        pytest.param(["0,4", "1,5", "2,6", "3,7"], range(8), 4, id="SMT"),
        pytest.param(["0-1", "2-3"], range(4), 2, id="SMT, numbered in pairs"),
        pytest.param(["0,4", "1,5", "2,6", "3,7"], [0, 4, 5], 2, id="affinity"),
        pytest.param(["0-1", "2-3", "4", "5", "6", "7"], range(8), 6, id="fast and slow cores"),
        pytest.param(["0", "1"], range(2), 2, id="one thread per core"),
        pytest.param([], range(3), 3, id="a system that does not tell"),
        pytest.param(["0-1"], range(3), 2, id="a system that tells of some"),
    ],
)
def test_a_model_has_a_thread_for_each_physical_core(
    machine: Write,
    monkeypatch: pytest.MonkeyPatch,
    cores: list[str],
    cpus: list[int],
    threads: int,
) -> None:
    machine(siblings(*cores))
    on_cpus(monkeypatch, *cpus)
    assert linux.default_threads() == threads
    assert linux.usable_cores() == len(cpus)


@pytest.mark.parametrize(
    ("quota", "threads"),
    [("150000 100000", 2), ("50000 100000", 1), ("200000 100000", 2), ("max 100000", 4)],
)
def test_a_model_has_no_more_threads_than_its_container_may_run(
    machine: Write, monkeypatch: pytest.MonkeyPatch, quota: str, threads: int
) -> None:
    machine(siblings("0,4", "1,5", "2,6", "3,7") | VERSION_2 | {"sys/fs/cgroup/app/cpu.max": quota})
    on_cpus(monkeypatch, *range(8))
    assert linux.default_threads() == threads


def test_replicas_on_ray_share_the_physical_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingot.cli.shared.ray_flags.default_threads", lambda: 9)
    monkeypatch.setattr("ingot.ray.require_ray", lambda: None)
    scales = [
        RayFlags(ray=True, replicas=replicas)._plan(serving(Path("model")), [], None)[0]
        for replicas in (1, 2, 20)
    ]
    assert [scale.cpus for scale in scales] == [9, 4, 1]


def test_the_variable_overrides_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_module, "default_threads", lambda: 3)
    monkeypatch.delenv("INGOT_THREADS", raising=False)
    config_module.config.cache_clear()
    try:
        assert config_module.config().threads == 3
        config_module.config.cache_clear()
        monkeypatch.setenv("INGOT_THREADS", "7")
        assert config_module.config().threads == 7
    finally:
        config_module.config.cache_clear()


def test_cores_and_nodes_as_the_system_lists_them(machine: Write) -> None:
    root = machine(siblings("0,2", "1,3"))
    assert physical_cores(root) == [frozenset({0, 2}), frozenset({1, 3})]
    for name, text in (("node0", "0-2,8\n"), ("node10", "3\n"), ("node8", "\n")):
        machine({f"sys/devices/system/node/{name}/cpulist": text})
    assert numa_nodes(root) == {0: {0, 1, 2, 8}, 8: frozenset(), 10: {3}}
    assert [*numa_nodes(root)] == [0, 8, 10], "as numbers, not as texts"
    assert numa_nodes(root / "nothing") == {}
    assert physical_cores(root / "nothing") == []
