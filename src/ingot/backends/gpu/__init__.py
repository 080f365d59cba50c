"""The GPU backend: a fused graph as Triton kernels on quantized weights."""

from ingot.backends.gpu.backend import GpuBackend
from ingot.backends.gpu.chain import GpuChain
from ingot.backends.gpu.device import (
    Device,
    device_count,
    find_device,
    give_back,
    has_gpu,
    imagined_device,
)
from ingot.backends.gpu.input_sums import DeviceSums
from ingot.backends.gpu.join_rows import joined_graph
from ingot.backends.gpu.memory import require
from ingot.backends.gpu.planner import GpuPlan, Planner
from ingot.backends.gpu.sampler import sampling_plans

__all__ = [
    "Device",
    "DeviceSums",
    "GpuBackend",
    "GpuChain",
    "GpuPlan",
    "Planner",
    "device_count",
    "find_device",
    "give_back",
    "has_gpu",
    "imagined_device",
    "joined_graph",
    "require",
    "sampling_plans",
]
