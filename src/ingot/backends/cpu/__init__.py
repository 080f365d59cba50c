"""The CPU backend: a fused graph as a native program on a team of threads."""

from ingot.backends.cpu.backend import CpuBackend

__all__ = ["CpuBackend"]
