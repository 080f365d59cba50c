"""What a system tells about its CPU: the result of `read_cpu` on every system."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cache:
    """A data cache of the first CPU; on macOS of a fast one."""

    level: int
    bytes: int
    shared_by: int  # CPUs


@dataclass(frozen=True, slots=True)
class Cpu:
    """What is not known is None or empty."""

    name: str | None  # also tells machines apart that compute at different speeds
    cores: int | None  # physical, of the online CPUs
    caches: tuple[Cache, ...]
