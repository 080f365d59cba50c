"""Kernels that start before the one in front of them has ended (NVIDIA, from sm_90 on).

With AHEAD a kernel lets the next one start when its own work is nearly done. That one works out its
addresses, reads what no kernel writes, and then waits until all that is in front of it has ended:
what other kernels of a step write is read, and all is written, behind the waiting only. A kernel
that lets the next one start too early shares the multiprocessors with programs that wait, and is
slower for it.
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
    """Go on when the kernels before this one have ended."""
    if AHEAD:
        gdc_wait()
