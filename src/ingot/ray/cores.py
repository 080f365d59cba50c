"""Core sets: which cores of a machine a replica keeps to, so that replicas do not share any.

The cores that a process may use are split into sets, none of which reaches over two NUMA nodes if
that can be. A replica claims a set by locking a file, which the system unlocks when it ends. It
does not know Ray, which counts cores but does not give them out.
"""

import os
import tempfile
from collections.abc import Sequence, Set
from pathlib import Path
from typing import BinaryIO

from ingot.errors import ConfigError
from ingot.machine import lock_file
from ingot.machine.cpu_topology import numa_nodes, physical_cores


class CoreSet:
    """Cores that belong to this process while it lives."""

    def __init__(self, cores: frozenset[int], lock: BinaryIO) -> None:
        self.cores = cores
        self._lock = lock

    def keep_to(self) -> None:
        """Run this thread, and those that it starts, on these cores only."""
        os.sched_setaffinity(0, self.cores)

    def release(self) -> None:
        """Leave the set to others."""
        self._lock.close()


def claim(size: int, folder: Path | None = None) -> CoreSet:
    """A free set of `size` cores; an error if all sets of that size are taken."""
    if not hasattr(os, "sched_setaffinity"):
        raise ConfigError("cores can be pinned on Linux only; leave `pin` out")
    place = folder or Path(tempfile.gettempdir()) / f"ingot-cores-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    cpus = spread(os.sched_getaffinity(0), physical_cores())
    sets = core_sets(cpus, [*numa_nodes().values()], size)
    for cores in sets:
        lock = (place / f"{min(cores)}-{size}").open("ab")
        if lock_file(lock.fileno(), wait=False):
            return CoreSet(cores, lock)
        lock.close()
    raise ConfigError(
        f"this machine has {len(sets)} sets of {size} cores, and other replicas have all of them; "
        "start fewer, with fewer cores each, or without `pin`"
    )


def spread(cpus: Set[int], cores: Sequence[frozenset[int]]) -> list[int]:
    """CPUs in an order in which no two are of one physical core before every core has one."""
    place = {cpu: number for core in cores for number, cpu in enumerate(sorted(core & cpus))}
    return sorted(cpus, key=lambda cpu: (place.get(cpu, 0), cpu))


def core_sets(
    cores: Sequence[int], nodes: Sequence[frozenset[int]], size: int
) -> list[frozenset[int]]:
    """All sets of `size` cores in this order, within NUMA nodes if these are large enough."""
    groups = [[core for core in cores if core in node] for node in nodes]
    if not groups or max(map(len, groups)) < size:
        groups = [list(cores)]
    return [
        frozenset(group[start : start + size])
        for group in groups
        for start in range(0, len(group) - size + 1, size)
    ]
