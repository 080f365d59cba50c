"""Facts of simulated machines: trees of files as /proc and /sys have them."""

import os
from pathlib import Path

import pytest

from ingot.cli.doctor.machine_facts import network_file_system, read_machine
from ingot.machine import Cache, total_memory

GIB = 1 << 30


def tree(root: Path, files: dict[str, str]) -> Path:
    """Write files below a folder that stands for /."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


LAPTOP = {
    "proc/cpuinfo": "".join(
        f"processor\t: {cpu}\nmodel name\t: Some CPU 9000\n"
        f"physical id\t: 0\ncore id\t\t: {cpu // 2}\n\n"
        for cpu in range(4)
    ),
    "proc/meminfo": "MemTotal:       8388608 kB\nMemAvailable:   4194304 kB\n"
    "SwapTotal:      2097152 kB\nSwapFree:       1048576 kB\n",
    "proc/pressure/cpu": "some avg10=42.50 avg60=1.00 avg300=0.00 total=1\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "sys/devices/system/node/node0/cpulist": "0-3\n",
    "sys/devices/system/node/node1/cpulist": "4-7\n",
    "sys/devices/system/cpu/cpu0/cache/index0/level": "1\n",
    "sys/devices/system/cpu/cpu0/cache/index0/type": "Data\n",
    "sys/devices/system/cpu/cpu0/cache/index0/size": "32K\n",
    "sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_list": "0,2\n",
    "sys/devices/system/cpu/cpu0/cache/index1/level": "1\n",
    "sys/devices/system/cpu/cpu0/cache/index1/type": "Instruction\n",
    "sys/devices/system/cpu/cpu0/cache/index1/size": "32K\n",
    "sys/devices/system/cpu/cpu0/cache/index3/level": "3\n",
    "sys/devices/system/cpu/cpu0/cache/index3/type": "Unified\n",
    "sys/devices/system/cpu/cpu0/cache/index3/size": "32768K\n",
    "sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list": "0-3,8\n",
    "dev/nvidia0": "",
    "dev/nvidiactl": "",
}


def test_a_laptop(tmp_path: Path) -> None:
    machine = read_machine(tree(tmp_path, LAPTOP))
    assert machine.cpu == "Some CPU 9000"
    assert machine.cores == 2
    assert machine.caches == (Cache(1, 32 << 10, 2), Cache(3, 32 << 20, 5))
    assert machine.numa_nodes == 2
    assert (machine.memory, machine.available) == (8 * GIB, 4 * GIB)
    assert machine.swap_used == GIB
    assert machine.busy == pytest.approx(0.425)
    assert machine.huge_pages == "madvise"
    assert machine.gpu_devices == ("/dev/nvidia0",)
    assert (machine.cpu_quota, machine.memory_limit) == (None, None)


def test_a_system_that_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As macOS and Windows: no /proc, no affinity."""
    monkeypatch.delattr(os, "sched_getaffinity")
    machine = read_machine(tmp_path)
    assert machine.allowed_cpus == machine.cpus
    assert machine.caches == ()
    assert machine.numa_nodes == 1
    unknown = [machine.cores, machine.cpu_quota, machine.busy]
    unknown += [machine.memory_limit, machine.swap_used, machine.huge_pages]
    assert unknown == [None] * 6
    assert machine.memory == total_memory()
    assert 0 < machine.available <= machine.memory


@pytest.mark.parametrize(
    "files",
    [
        pytest.param(
            {
                "proc/self/cgroup": "0::/app/inner\n",
                "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
                "sys/fs/cgroup/app/cpu.max": "150000 100000\n",
                "sys/fs/cgroup/app/inner/cpu.max": "max 100000\n",
                "sys/fs/cgroup/app/memory.max": f"{2 * GIB}\n",
                "sys/fs/cgroup/app/inner/memory.max": "max\n",
            },
            id="version 2, limited by the parent",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/\n",
                "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
                "sys/fs/cgroup/cpu.max": "150000 100000\n",
                "sys/fs/cgroup/memory.max": f"{2 * GIB}\n",
            },
            id="version 2, inside a container",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2 * GIB}\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            id="version 1, inside a container",
        ),
    ],
)
def test_limits_of_a_container(tmp_path: Path, files: dict[str, str]) -> None:
    machine = read_machine(tree(tmp_path, LAPTOP | files))
    assert machine.cpu_quota == pytest.approx(1.5)
    assert machine.memory_limit == 2 * GIB
    assert machine.available == 2 * GIB


def test_no_limit_in_version_1_is_a_huge_or_negative_number(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/\n1:cpu:/\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    }
    machine = read_machine(tree(tmp_path, files))
    assert (machine.cpu_quota, machine.memory_limit) == (None, None)


def test_a_file_on_a_network(tmp_path: Path) -> None:
    mounts = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:42 / /models rw - nfs4 server:/x rw\n"
    root = tree(tmp_path, {"proc/self/mountinfo": mounts})
    assert network_file_system(Path("/models/a/b.gguf"), root) == "nfs4"
    assert network_file_system(Path("/modelsx/b.gguf"), root) is None
    assert network_file_system(Path("/models/b.gguf"), tmp_path / "nowhere") is None
