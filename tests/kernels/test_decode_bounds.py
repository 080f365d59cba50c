"""Decoding reads its blocks and writes its output, and not one byte more.

Weights are read straight from a mapped file whose last tensor may end at the last byte
of a page. Blocks and output end right before pages without access, in a separate
process: one byte too far ends it.
"""

import subprocess
import sys

import pytest

from ingot import _native

PROGRAM = """
import ctypes, mmap, sys
import numpy as np
from ingot import _native
from ingot.quant import formats

PAGE = mmap.PAGESIZE
libc = ctypes.CDLL(None, use_errno=True)

def guarded(size):
    # `size` bytes that end where a forbidden page begins.
    pages = -(-size // PAGE)
    memory = mmap.mmap(-1, (pages + 1) * PAGE)
    array = np.frombuffer(memory, np.uint8)
    guard = ctypes.c_void_p(array.ctypes.data + pages * PAGE)
    assert libc.mprotect(guard, ctypes.c_size_t(PAGE), 0) == 0
    return array[pages * PAGE - size : pages * PAGE]

_native.set_isa(sys.argv[1])
rng = np.random.default_rng(0)
for block in formats().values():
    for count in (1, 2, 3):
        print(block.type.name, count, flush=True)
        blocks = guarded(count * block.type.block_bytes)
        blocks[:] = rng.integers(0, 256, blocks.size, dtype=np.uint8)
        out = guarded(count * block.type.block_size * 4).view(np.float32)
        _native.decode(block.type, blocks, out, 1)
print("done")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="page protection is done with mprotect")
@pytest.mark.parametrize("isa", _native.instruction_sets())
def test_no_byte_beyond_the_blocks(isa):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, isa], capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines() or ["nothing"]
    assert done.returncode == 0, f"stopped at {lines[-1]}: {done.stderr}"
    assert lines[-1] == "done"
