"""What the operating system says about this machine, as far as speed depends on it.

In: the files under /proc, /sys and /dev (`root` is another place in tests), and `ingot.machine` for
what every system tells: the CPU, memory and usable CPUs. Out: `MachineFacts`. Other facts that the
system does not tell are None or empty; nothing here raises because a file is missing, as on macOS
and Windows.
"""

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from ingot.machine import Cache, available_memory, read_cpu, total_memory, usable_cores
from ingot.machine.control_groups import cpu_quota, memory_left, memory_limit

_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "lustre", "afs", "beegfs")
_BUSY = 0.25  # share of time with a process waiting for a CPU


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """One machine at one moment; sizes are in bytes."""

    system: str  # Linux, Darwin, Windows
    cpu: str
    cpus: int  # online
    allowed_cpus: int  # for this process; on macOS the fast ones
    cores: int | None  # physical, of the online CPUs
    cpu_quota: float | None  # CPUs that the container may use, on average
    busy: float | None  # share of the last ten seconds in which somebody waited for a CPU
    caches: tuple[Cache, ...]
    numa_nodes: int
    memory: int
    available: int  # for models, within the container's limit
    memory_limit: int | None  # of the container
    swap_used: int | None
    huge_pages: str | None  # always, madvise, never
    gpu_devices: tuple[str, ...]  # device files of GPUs

    @property
    def is_busy(self) -> bool:
        """Whether other programs take so much of the CPUs that no speed can be measured."""
        return self.busy is not None and self.busy > _BUSY


def read_machine(root: Path = Path("/")) -> MachineFacts:
    """Read all of them."""
    cpu = read_cpu(root)
    meminfo = _meminfo(root)
    swap, unused = meminfo.get("SwapTotal"), meminfo.get("SwapFree")
    available, left = meminfo.get("MemAvailable") or available_memory(), memory_left(root)
    return MachineFacts(
        system=platform.system(),
        cpu=cpu.name or platform.processor() or platform.machine(),
        cpus=os.cpu_count() or 1,
        allowed_cpus=usable_cores(),
        cores=cpu.cores,
        cpu_quota=cpu_quota(root),
        busy=_busy(root),
        caches=cpu.caches,
        numa_nodes=len(list((root / "sys/devices/system/node").glob("node[0-9]*"))) or 1,
        memory=meminfo.get("MemTotal") or total_memory(),
        available=available if left is None else min(available, left),
        memory_limit=memory_limit(root),
        swap_used=None if swap is None or unused is None else swap - unused,
        huge_pages=_chosen(_text(root / "sys/kernel/mm/transparent_hugepage/enabled")),
        gpu_devices=tuple(
            f"/dev/{device.name}"
            for pattern in ("nvidia[0-9]*", "kfd")
            for device in sorted((root / "dev").glob(pattern))
        ),
    )


def network_file_system(path: Path, root: Path = Path("/")) -> str | None:
    """The type of the file system that a file is on, if it is one of a network."""
    path, best, kind = path.resolve(), "", None
    for line in _text(root / "proc/self/mountinfo").splitlines():
        # number, parent, device, root, mount point, ... - type, ...
        left, _, right = line.partition(" - ")
        mounted_at, *_ = left.split()[4:] or [""]
        if path.is_relative_to(mounted_at) and right and len(mounted_at) >= len(best):
            best, kind = mounted_at, right.split()[0]
    return kind if kind in _NETWORK or (kind or "").startswith("fuse.") else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _meminfo(root: Path) -> dict[str, int]:
    lines = re.findall(r"^(\w+):\s+(\d+) kB$", _text(root / "proc/meminfo"), re.M)
    return {name: int(count) * 1024 for name, count in lines}


def _chosen(text: str) -> str | None:
    """The word in brackets, by which the kernel marks the setting in use."""
    found = re.search(r"\[(\w+)\]", text)
    return found[1] if found else None


def _busy(root: Path) -> float | None:
    found = re.search(r"^some avg10=([\d.]+)", _text(root / "proc/pressure/cpu"), re.M)
    return float(found[1]) / 100 if found else None
