"""Kernels that start before the one in front of them has ended (NVIDIA, from sm_90 on).

With AHEAD a kernel lets the next one start at once. That one works out its addresses, asks for the
weights it will read, which no kernel writes, and then waits until all that is in front of it has
ended. Whatever another kernel of the step writes is read or written behind the waiting only.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

# One thread asks for a run of bytes, which the device brings to its cache.
_FETCH = tl.constexpr("""{
.reg .pred p;
.reg .b32 t;
mov.u32 t, %tid.x;
setp.eq.u32 p, t, 0;
@p cp.async.bulk.prefetch.L2.global [$1], $2;
mov.u32 $0, t;
}""")


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


@triton.jit
def fetch(place, size, AHEAD: tl.constexpr):
    """Ask for `size` bytes, a multiple of 16, from a pointer on."""
    if AHEAD:
        tl.inline_asm_elementwise(_FETCH, "=r,l,r", [place, size], tl.int32, False, 1)
