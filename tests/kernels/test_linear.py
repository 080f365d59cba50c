"""Matrix kernels: every format x instruction set x phase against float64 products."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from ingot import _native

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

TYPES = {name: (number, weights, size) for name, number, weights, size in _native.tensor_types()}
# Where a block holds its f16 factors; the other bytes may be anything.
HALVES = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "Q8_K": [],
    "IQ1_S": [0],
    "IQ1_M": [],
    "IQ2_XXS": [0],
    "IQ2_XS": [0],
    "IQ2_S": [0],
    "IQ3_XXS": [0],
    "IQ3_S": [0],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
    "TQ1_0": [52],
    "TQ2_0": [64],
    "MXFP4": [],
    "NVFP4": [],
}
FLOATS = {"F32": np.float32, "F16": np.float16, "BF16": None}
FORMATS = [*HALVES, *FLOATS]
PHASES = ["generation", "prompt"]
AMPLITUDE = {"generation": 16383, "prompt": 8191}
# The bytes of an input block: 256 int16 values, 16 + 8 sums, then the scale.
VALUES, SCALE, INPUT_BLOCK = 512, 512 + 64 + 32, 640


@pytest.fixture(autouse=True, params=_native.instruction_sets())
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    before = _native.active_isa()
    _native.set_isa(request.param)
    yield request.param
    _native.set_isa(before)


def aligned(shape: tuple[int, int]) -> Bytes:
    room = np.zeros(shape[0] * shape[1] + 63, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + shape[0] * shape[1]].reshape(shape)


def set_factors(name: str, blocks: Bytes, rng: np.random.Generator) -> None:
    """Give random blocks factors of sensible size, of either sign."""
    count = len(blocks)
    factors = rng.uniform(0.5, 2, (count, 2)) * rng.choice([-1, 1], (count, 2))
    halves = factors.astype(np.float16).view(np.uint8).reshape(count, 2, 2)
    for i, offset in enumerate(HALVES[name]):
        blocks[:, offset : offset + 2] = halves[:, i]
    if name == "Q8_K":
        blocks[:, :4] = factors[:, :1].astype(np.float32).view(np.uint8)
    elif name == "IQ1_M":  # a nibble of d on top of each of four words
        bits = halves[:, 0].copy().view(np.uint16)[:, 0]
        words = blocks[:, 48:56].copy().view(np.uint16) & 0x0FFF
        for i in range(4):
            words[:, i] |= (bits >> (4 * i) & 15) << 12
        blocks[:, 48:56] = words.view(np.uint8)
    elif name == "MXFP4":
        blocks[:, 0] = rng.integers(122, 130, count)


def random_weight(name: str, rows: int, width: int, rng: np.random.Generator) -> Bytes:
    _, weights, size = TYPES[name]
    if name in FLOATS:
        values = rng.standard_normal((rows, width)).astype(np.float32)
        if name == "BF16":
            return np.ascontiguousarray((values.view(np.uint32) >> 16).astype(np.uint16)).view(
                np.uint8
            )
        return values.astype(FLOATS[name]).view(np.uint8)
    blocks = rng.integers(0, 256, (rows * width // weights, size), dtype=np.uint8)
    set_factors(name, blocks, rng)
    return blocks.reshape(rows, -1)


def decode(name: str, weight: Bytes, width: int) -> NDArray[np.float64]:
    out = np.empty(len(weight) * width, np.float32)
    _native.decode(TYPES[name][0], weight.reshape(-1), out, 1)
    return out.reshape(len(weight), width).astype(np.float64)


def quantize(phase: str, values: Floats) -> Bytes:
    out = aligned((len(values), _native.quantized_bytes(values.shape[1])))
    _native.quantize_inputs(phase, values, out)
    return out


def quantized_values(quantized: Bytes, width: int) -> NDArray[np.float64]:
    """The inputs as the kernels see them."""
    blocks = quantized.reshape(len(quantized), -1, INPUT_BLOCK)
    values = blocks[..., :VALUES].copy().view(np.int16).astype(np.float64)
    scales = blocks[..., SCALE : SCALE + 4].copy().view(np.float32).astype(np.float64)
    return (values * scales).reshape(len(quantized), -1)[:, :width]


@dataclass(frozen=True)
class Product:
    """One weight, and what it gives for inputs."""

    name: str
    phase: str
    weight: Bytes

    def __call__(self, values: Floats, begin: int = 0, end: int | None = None) -> Floats:
        rows = len(self.weight)
        out = np.full((len(values), rows), np.nan, np.float32)
        _native.linear(
            TYPES[self.name][0],
            self.phase,
            self.weight,
            values,
            quantize(self.phase, values),
            begin,
            rows if end is None else end,
            out,
        )
        return out

    def operands(self, values: Floats) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        w = decode(self.name, self.weight, values.shape[1])
        if self.name in FLOATS:
            return w, values.astype(np.float64)
        return w, quantized_values(quantize(self.phase, values), values.shape[1])

    def check(self, values: Floats, tolerance: float = 2e-6) -> None:
        w, x = self.operands(values)
        error = np.abs(self(values) - x @ w.T)
        assert np.all(error <= tolerance * (np.abs(x) @ np.abs(w).T) + 1e-30), (
            f"{self.name} {self.phase}: {np.max(error / (np.abs(x) @ np.abs(w).T + 1e-30)):.3g}"
        )


def widths(name: str) -> list[int]:
    block = TYPES[name][1]
    return [1, 23, 1100] if block == 1 else [block, 5 * 256 + block % 256]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", FORMATS)
def test_same_operands(name: str, phase: str) -> None:
    rng = np.random.default_rng(1)
    for width in widths(name):
        for rows, columns in [(1, 1), (7, 3), (101, 1), (50, 13)]:
            product = Product(name, phase, random_weight(name, rows, width, rng))
            product.check(rng.standard_normal((columns, width)).astype(np.float32))
