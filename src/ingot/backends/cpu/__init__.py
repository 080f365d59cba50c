"""The CPU backend: a fused graph as a native program on a team of threads."""

from ingot.backends.cpu.backend import CpuBackend, Pools
from ingot.backends.cpu.repacking import Repacking

__all__ = ["CpuBackend", "Pools", "Repacking"]
