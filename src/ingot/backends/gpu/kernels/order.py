"""Kernels that start before the one before them has ended (NVIDIA, from sm_90 on).

With AHEAD a kernel lets the next one start when its own work is nearly done. The next one computes
its addresses, reads what no kernel writes, and then waits until all kernels before it have ended.
Only after that wait does it read what other kernels of a step write, and write anything itself. A
kernel that lets the next one start too early shares the multiprocessors with programs that wait,
and becomes slower.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def start_next(AHEAD: tl.constexpr):
    """Let the next kernel start."""
    if AHEAD:
        gdc_launch_dependents()


@triton.jit
def wait_for_last(AHEAD: tl.constexpr):
    """Wait until the kernels before this one have ended."""
    if AHEAD:
        gdc_wait()
