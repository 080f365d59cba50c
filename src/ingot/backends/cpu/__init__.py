"""The CPU backend: a fused graph as a native program on a team of threads."""

from ingot.backends.cpu.backend import CpuBackend, Pools
from ingot.backends.cpu.repacking import Copies, Repacking

__all__ = ["Copies", "CpuBackend", "Pools", "Repacking"]
