"""Seats: the CPUs and the NUMA node that each thread of a model keeps to.

In: how many threads, what was asked for, and the topology of the machine. Out: a seat for each
thread; none if the system may choose. Threads of one node follow each other, because neighbours
share out neighbouring rows of a matrix. It places nothing itself: the native program does.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from ingot.errors import ConfigError
from ingot.machine.cpu_topology import numa_nodes, physical_cores


class Numa(StrEnum):
    """What is done on a machine with several NUMA nodes."""

    AUTO = "auto"  # as "split", if the threads are more than the cores of a node
    OFF = "off"
    SPLIT = "split"  # threads keep to nodes, which hold the rows that their threads multiply
    REPLICATE = "replicate"  # and each node has all repacked weights


@dataclass(frozen=True, slots=True)
class Seat:
    """Where one thread runs, and which replica of the repacked weights it reads."""

    cpus: tuple[int, ...]
    node: int
    replica: int = 0


@dataclass(frozen=True, slots=True)
class Core:
    """The CPUs of a physical core that may be used, and its node."""

    node: int
    cpus: tuple[int, ...]


def seats_here(threads: int, numa: Numa, *, pin: bool) -> list[Seat]:
    """Those of this machine."""
    if numa is Numa.OFF and not pin:
        return []
    return seats(threads, numa, _cores(), pin=pin)


def seats(threads: int, numa: Numa, cores: Sequence[Core], *, pin: bool) -> list[Seat]:
    """A seat for each thread on such cores, which come node by node."""
    if pin and threads > len(cores):
        raise ConfigError(
            f"{threads} threads cannot be pinned to {len(cores)} cores of their own; take fewer "
            "threads, or leave pin_threads out"
            if cores
            else "threads cannot be pinned, because the system does not tell its cores (Linux does "
            "so in /sys); leave pin_threads out"
        )
    nodes = [list(group) for _, group in groupby(cores, key=lambda core: core.node)]
    largest = max(nodes, key=len, default=[])
    is_spread = len(nodes) > 1 and threads >= len(nodes) and numa is not Numa.OFF
    if is_spread and numa is Numa.AUTO:
        is_spread = threads > len(largest)
    if not is_spread:
        return [Seat(core.cpus[:1], core.node) for core in _first(largest, cores, threads, pin)]
    found: list[Seat] = []
    for number, group in enumerate(nodes):
        before = sum(map(len, nodes[:number]))
        begin, end = (threads * n // len(cores) for n in (before, before + len(group)))
        everywhere = tuple(cpu for core in group for cpu in core.cpus)
        replica = len({seat.node for seat in found}) if numa is Numa.REPLICATE else 0
        found += [
            Seat(group[i].cpus[:1] if pin else everywhere, group[0].node, replica)
            for i in range(end - begin)
        ]
    return found


def _first(
    largest: Sequence[Core], cores: Sequence[Core], threads: int, pin: bool
) -> Sequence[Core]:
    """Cores for threads that are pinned and not spread: of one node, if it has enough."""
    if not pin:
        return []
    return largest[:threads] if threads <= len(largest) else cores[:threads]


def _cores() -> list[Core]:
    """The physical cores that this process may use, node by node; none if the system is silent."""
    cores = physical_cores()
    if not cores:
        return []
    allowed, nodes = os.sched_getaffinity(0), numa_nodes()
    found = []
    for core in cores:
        if cpus := tuple(sorted(core & allowed)):
            node = next((number for number, node in nodes.items() if cpus[0] in node), 0)
            found.append(Core(node, cpus))
    return sorted(found, key=lambda core: (core.node, core.cpus))
