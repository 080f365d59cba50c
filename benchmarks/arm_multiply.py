"""Multiply a matrix some times, in an emulator that counts instructions (bench_arm.py).

Usage: multiply.py TIER FORMAT PHASE COLUMNS COPY ROUNDS    COPY: 1 multiplies an interleaved copy
"""

import sys

import numpy as np
from numpy.typing import NDArray

from ingot import _native

ROWS, WIDTH = 96, 2048


def aligned(rows: int, size: int) -> NDArray[np.uint8]:
    room = np.zeros(rows * size + 63, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + rows * size].reshape(rows, size)


def main() -> None:
    tier, name, phase, columns, copied, rounds = sys.argv[1:]
    _native.set_isa(tier)
    fast = _native.CODES["Precision"].__members__["FAST"]
    number, block, size = {t[0]: t[1:] for t in _native.tensor_types()}[name]
    rng = np.random.default_rng(0)
    weight = np.empty((ROWS, WIDTH // block * size), np.uint8)
    _native.encode(
        number, rng.standard_normal(ROWS * WIDTH).astype(np.float32), weight.reshape(-1), 1
    )
    if int(copied):
        copy = aligned(ROWS, _native.interleaved_row_bytes(number, WIDTH, fast))
        _native.interleave(number, weight, WIDTH, copy, fast)
        weight = copy
    values = rng.standard_normal((int(columns), WIDTH)).astype(np.float32)
    out = np.empty((len(values), ROWS), np.float32)
    quantized = aligned(-(-len(values) // 16) * 16, _native.quantized_bytes(WIDTH, fast))
    _native.quantize_inputs(number, phase, values, quantized, fast)
    for _ in range(int(rounds)):
        _native.linear(
            number,
            phase,
            weight,
            values,
            quantized,
            0,
            ROWS,
            out,
            fast,
            interleaved=bool(int(copied)),
        )


if __name__ == "__main__":
    main()
