"""The GPU backend: a fused graph as Triton kernels on quantized weights."""

from ingot.backends.gpu.backend import GpuBackend
from ingot.backends.gpu.device import Device, find_device, has_gpu

__all__ = ["Device", "GpuBackend", "find_device", "has_gpu"]
