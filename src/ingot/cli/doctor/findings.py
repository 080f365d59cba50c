"""What is slow on a machine, why, and what to do about it.

Facts and measurements come in, findings go out. Nothing is read or measured here, so every finding
can be tested with made-up facts.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ingot.cli.doctor.machine_facts import MachineFacts
from ingot.cli.shared.output import size

_SWAP = 256 << 20  # bytes; what lies there since the machine started does no harm
_PAGES_GAIN = 1.08  # of huge pages, worth a recommendation
_SLOW_START = 10.0  # seconds to read a model from its disk
# `read` keeps weights as the file has them, so they are not repacked: only for types without that.
_COPIES = (
    "use --weights auto (the default) or repack, which copy weights to huge pages in the order "
    "in which the CPU reads them; read only for types that have no such copies (Q4_1, IQ2, F16)"
)
# The features that a build should have kernels for, if a CPU has them.
_WORTHWHILE = ("avx2", "avxvnni", "avx512f", "avx512vnni", "amx_int8", "neon", "dotprod", "i8mm")


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason for less speed than the hardware allows."""

    what: str
    why: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Kernels:
    """The instruction sets of this build and of this CPU."""

    chosen: str
    needs: Mapping[str, Sequence[str]]  # features, of every compiled set, slowest first
    features: Sequence[str]  # of the CPU, as the system allows them

    @property
    def best(self) -> str:
        """The fastest compiled set that this CPU can run."""
        return [name for name in self.needs if not self.missing(name)][-1]

    def missing(self, name: str) -> list[str]:
        """Features that a set needs and this CPU does not offer."""
        return [feature for feature in self.needs[name] if feature not in self.features]


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user chose."""

    threads: int
    precision: str


@dataclass(frozen=True, slots=True)
class FileSpeed:
    """Where a model file is."""

    bytes: int
    bytes_per_second: float | None  # from its disk
    network: str | None  # the type of the file system, if it is one of a network


def find(
    machine: MachineFacts,
    kernels: Kernels,
    settings: Settings,
    *,
    huge_page_gain: float | None,
    torch: bool,
    gpu: bool,
    file: FileSpeed | None = None,
) -> list[Finding]:
    """All findings, those about computing first."""
    return [
        *_about_kernels(kernels, settings),
        *_about_cpus(machine, settings),
        *_about_memory(machine, huge_page_gain),
        *_about_gpus(machine, torch=torch, gpu=gpu),
        *(_about_file(file) if file else ()),
    ]


def _about_kernels(kernels: Kernels, settings: Settings) -> Iterator[Finding]:
    compiled_for = {feature for needs in kernels.needs.values() for feature in needs}
    absent = [f for f in _WORTHWHILE if f in kernels.features and f not in compiled_for]
    if absent:
        yield Finding(
            f"this build has no kernels for {', '.join(absent)}",
            "the CPU has these instructions, but the package was compiled without them",
            "install the wheel of your platform, or compile with a newer compiler",
        )
    if kernels.chosen != kernels.best:
        yield Finding(
            f"the instruction set is {kernels.chosen}, not {kernels.best}",
            "INGOT_ISA is set",
            "unset INGOT_ISA",
        )
    if settings.precision == "exact":
        yield Finding(
            "inputs of matrix products have 16 bits",
            "INGOT_PRECISION is exact, which takes up to twice as long in prefill",
            "unset INGOT_PRECISION, unless you need the last digits",
        )


def _about_cpus(machine: MachineFacts, settings: Settings) -> Iterator[Finding]:
    if machine.allowed_cpus < machine.cpus and machine.system != "Darwin":
        yield Finding(
            f"{machine.allowed_cpus} of {machine.cpus} CPUs are allowed",
            "the affinity of this process excludes the others (taskset, cpuset of a container)",
            "allow more CPUs",
        )
    if machine.cpu_quota is not None and math.ceil(machine.cpu_quota) < settings.threads:
        yield Finding(
            f"{settings.threads} threads share a quota of {machine.cpu_quota:.2g} CPUs",
            "the container stops all threads when the quota of a period is used up",
            f"raise the quota, or set INGOT_THREADS={max(1, math.ceil(machine.cpu_quota))}",
        )
    if settings.threads > machine.allowed_cpus:
        yield Finding(
            f"{settings.threads} threads run on {machine.allowed_cpus} CPUs",
            "INGOT_THREADS is larger than the number of CPUs, so threads wait for each other",
            f"set INGOT_THREADS to {machine.allowed_cpus} or less",
        )
    if machine.busy is not None and machine.is_busy:
        yield Finding(
            f"processes waited for a CPU in {machine.busy:.0%} of the last 10 s",
            "other programs use the CPUs; a step is as slow as its slowest thread",
            "end other programs, or set INGOT_THREADS to the number of idle CPUs",
        )
    if machine.numa_nodes > 1:
        yield Finding(
            f"memory is on {machine.numa_nodes} NUMA nodes",
            "the page cache holds a file on one node, and the CPUs of others read it slowly",
            "let weights be repacked, which puts them where they are read; numa='replicate' "
            "(`--numa`) puts them on every node",
        )


def _about_memory(machine: MachineFacts, huge_page_gain: float | None) -> Iterator[Finding]:
    if machine.memory_limit is not None and machine.memory_limit < machine.memory:
        yield Finding(
            f"{size(machine.memory_limit)} of {size(machine.memory)} of memory are allowed",
            "the container has a limit, which mapped weights count against",
            "raise the limit if the model does not fit",
        )
    if machine.swap_used is not None and machine.swap_used > _SWAP:
        yield Finding(
            f"{size(machine.swap_used)} of memory are swapped out",
            "the machine had less memory than its programs need; weights that are dropped or "
            "swapped are read from the disk in every step",
            "end other programs, or use a smaller model",
        )
    if machine.huge_pages == "never":
        yield Finding(
            "huge pages are off",
            "with pages of 4 KiB, the CPU looks up addresses more often than it caches them",
            f"echo madvise > /sys/kernel/mm/transparent_hugepage/enabled; {_COPIES}",
        )
    elif huge_page_gain is not None and huge_page_gain > _PAGES_GAIN:
        yield Finding(
            f"memory is read {huge_page_gain - 1:.0%} faster from huge pages",
            "weights in a mapped file are on small pages",
            _COPIES,
        )


def _about_gpus(machine: MachineFacts, *, torch: bool, gpu: bool) -> Iterator[Finding]:
    if machine.gpu_devices and not gpu:
        yield Finding(
            f"a GPU is there ({machine.gpu_devices[0]}), but cannot be used",
            "its driver or device file is not accessible"
            if torch
            else "PyTorch and Triton are not installed",
            "check the driver (nvidia-smi) and the container's devices"
            if torch
            else "pip install 'ingot-llm[gpu]', then --device cuda",
        )


def _about_file(file: FileSpeed) -> Iterator[Finding]:
    if file.network:
        yield Finding(
            f"the model is on a network file system ({file.network})",
            "the first use of every weight waits for the network",
            "copy the file to a local disk",
        )
    if file.bytes_per_second and (seconds := file.bytes / file.bytes_per_second) > _SLOW_START:
        yield Finding(
            f"the disk of the model reads {file.bytes_per_second / 1e6:.0f} MB/s",
            f"the first prompt takes {seconds:.0f} s longer if the file is not in memory yet",
            "use a faster disk, or keep the file in memory with --weights lock",
        )
