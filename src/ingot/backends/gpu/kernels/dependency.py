"""Begin before the kernel before has ended (NVIDIA, from compute capability 9.0 on).

A kernel allows the next one to start at once, fetches what no kernel writes (weights) towards the
chip, and only then waits for the end of the one before. Nothing may be read that another kernel
writes, nor anything written, ahead of `wait`. Elsewhere all of this is nothing.
"""

import triton
import triton.language as tl
from triton.language.extra import cuda

_PIECE = tl.constexpr("cp.async.bulk.prefetch.L2.global [$1], 512; // $0")
_SMALL_PIECE = tl.constexpr("cp.async.bulk.prefetch.L2.global [$1], 128; // $0")
_ADDRESS = tl.constexpr("=r,l")


@triton.jit
def allow_next(EARLY: tl.constexpr):
    """Let the next kernel start."""
    if EARLY:
        cuda.gdc_launch_dependents()


@triton.jit
def wait(EARLY: tl.constexpr):
    """Until all that earlier kernels wrote is there."""
    if EARLY:
        cuda.gdc_wait()


@triton.jit
def begin(EARLY: tl.constexpr):
    """Both at once, where there is nothing to fetch."""
    allow_next(EARLY)
    wait(EARLY)


@triton.jit
def fetch_pieces(pointers):
    """512 bytes from each pointer on, towards the chip."""
    tl.inline_asm_elementwise(_PIECE, _ADDRESS, [pointers], tl.int32, False, 1)


@triton.jit
def fetch_small_pieces(pointers):
    """128 bytes from each pointer on."""
    tl.inline_asm_elementwise(_SMALL_PIECE, _ADDRESS, [pointers], tl.int32, False, 1)
