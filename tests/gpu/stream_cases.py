"""Kernels of streams, inputs of layers, shared keys and heads that guess, as they are launched."""

from collections.abc import Iterator

from gpu.kernel_case import EVEN, FLOATS, INTS, ODD, REAL, KernelCase, optional
from ingot.backends.gpu.kernels.heads import HeadForm, HeadNorm, RopeTable
from ingot.backends.gpu.kernels.join_rows import JoinedParts, join_rows_kernel
from ingot.backends.gpu.kernels.row_values import keep_peaks_kernel, rope_kernel, scale_kernel
from ingot.backends.gpu.kernels.streams import (
    add_to_streams_kernel,
    correct_streams_kernel,
    mean_streams_kernel,
    mix_streams_kernel,
    stack_streams_kernel,
)


def stream_cases() -> Iterator[KernelCase]:
    """As in Gemma 3n."""
    row = {"out": FLOATS, "width": EVEN, "BLOCK": 1024}
    few = {**row, "STREAMS": 4}
    stacked = {"first": FLOATS, "others": FLOATS, "epsilon": REAL, "OTHERS": 3, "BLOCK": 2048}
    yield KernelCase("stack streams", stack_streams_kernel, row | stacked, 8)
    x, gains = {"x": FLOATS}, {"gains": FLOATS}
    yield KernelCase("mix streams", mix_streams_kernel, few | x | gains)
    corrected = few | x | gains | {"row": FLOATS, "active": ODD}
    yield KernelCase("correct streams", correct_streams_kernel, corrected)
    yield KernelCase("add to streams", add_to_streams_kernel, few | x | {"row": FLOATS})
    yield KernelCase("mean streams", mean_streams_kernel, few | x)
    for weighted, one in ((False, False), (True, False), (True, True)):
        scaled = row | x | {"weight": optional(weighted), "factor": REAL, "ONE": one}
        yield KernelCase(f"scale {weighted} {one}", scale_kernel, scaled)
    peaks = row | x | {"deviations": REAL, "BLOCK": 16384}
    yield KernelCase("keep peaks", keep_peaks_kernel, peaks, 8)
    for interleaved in (False, True):
        turned = {"out": FLOATS, "positions": INTS, "norm": HeadNorm(), **x}
        turned |= {"rope": RopeTable(FLOATS, FLOATS), "SIZE": 256, "PADDED": 256}
        turned["HEAD"] = HeadForm(0, 0, pairs=128, interleaved=interleaved)
        yield KernelCase(f"rope {interleaved}", rope_kernel, turned, 1)
    joined = JoinedParts(FLOATS, FLOATS, FLOATS, FLOATS, REAL)
    rows = {"parts": joined, "out": FLOATS, "width": EVEN, "stride": 3 * EVEN, "BLOCK": 4096}
    yield KernelCase("join rows", join_rows_kernel, rows, 8)
