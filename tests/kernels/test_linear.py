"""Matrix kernels: every format x instruction set x phase against float64 products."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pytest
from numpy.typing import NDArray

from ingot import _native
from run_batches import using_isa

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
    "Q1_0": [0],
    "Q2_0": [0],
}
FLOATS = {"F32": np.float32, "F16": np.float16, "BF16": None}
FORMATS = [*HALVES, *FLOATS]
PHASES = ["generation", "prompt", "fast generation", "fast prompt"]
AMPLITUDE = {"generation": 16383, "prompt": 8191, "fast generation": 16383, "fast prompt": 8191}
# Formats that generation multiplies as bytes, if it is fast.
TURNED = {"Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"}
# The same in blocks of 32 weights: the second bytes of their inputs count.
SMALL = {"Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "MXFP4"}
# Without VNNI products are added in 16 bits, which those of these weights and a byte do not fit.
TOO_LARGE_WITHOUT_VNNI = {"IQ4_XS", "IQ4_NL", "Q8_0"}
WITHOUT_VNNI = {"avx2", "avx512"}
EXACT, FAST = _native.CODES["Precision"].__members__.values()
# The bytes of an input block: 256 int16 values, 16 + 8 sums, then the scale. The byte blocks of all
# columns follow if a precision has any; they have the same size: 256 int8 values, 8 scales,
# 8 + 16 sums, the same as 16-bit integers, four groups of second bytes, and the mask of the groups
# that have them.
VALUES, SCALE, INPUT_BLOCK = 512, 512 + 64 + 32, 640
SECONDS = np.dtype([("values", np.int8, 32), ("scale", np.float32), ("total", np.int32)])
SECOND, MASK = 432, 432 + 4 * SECONDS.itemsize


@pytest.fixture(autouse=True, params=_native.instruction_sets())
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    with using_isa(request.param):
        yield request.param


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


def of_phase(phase: str) -> tuple[str, Enum]:
    """The native phase and precision."""
    return phase.rsplit(maxsplit=1)[-1], FAST if phase.startswith("fast") else EXACT


def quantize(name: str, phase: str, values: Floats) -> Bytes:
    """Inputs for weights of this type."""
    groups = -(-len(values) // 16)
    native, precision = of_phase(phase)
    out = aligned((groups * 16, _native.quantized_bytes(values.shape[1], precision)))
    _native.quantize_inputs(TYPES[name][0], native, values, out, precision)
    return out


def in_tiles(name: str, phase: str) -> bool:
    """Prompts on AMX: weights and inputs are rounded to BF16."""
    is_prompt = phase.endswith("prompt") and not in_bytes(name, phase)
    return is_prompt and _native.active_isa() == "amx"


def has_bytes(phase: str) -> bool:
    return phase.startswith("fast")


def in_bytes(name: str, phase: str) -> bool:
    """Fast products: inputs are rounded to 8 bits, 32 to a scale."""
    isa = _native.active_isa()
    if not has_bytes(phase) or (isa in WITHOUT_VNNI and name in TOO_LARGE_WITHOUT_VNNI):
        return False
    if phase == "fast prompt" and isa == "amx":  # faster in tiles of BF16
        return False
    if name in TURNED | SMALL and isa != "scalar":
        return True
    return phase == "fast prompt" and TYPES[name][1] == 256 and isa not in WITHOUT_VNNI


def to_bf16(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rounded to the nearest, to even; what is subnormal becomes zero."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)
    rounded = np.where(np.abs(values) < np.finfo(np.float32).tiny, 0, rounded)
    return np.where(np.isfinite(values), rounded, values).astype(np.float64)


def input_blocks(quantized: Bytes, phase: str, *, as_bytes: bool = False) -> Bytes:
    """[column, stretch, bytes]: they lie stretch by stretch, the words before the bytes."""
    kinds = 2 if has_bytes(phase) else 1
    blocks = quantized.reshape(kinds, -1, len(quantized), INPUT_BLOCK)
    return blocks[1 if as_bytes else 0].swapaxes(0, 1)


def second_bytes(block: Bytes) -> dict[int, np.void]:
    """The second bytes of a block, by group."""
    mask = int(block[MASK : MASK + 4].copy().view(np.uint32)[0])
    groups = [g for g in range(8) if mask >> g & 1]
    return dict(zip(groups, block[SECOND:MASK].copy().view(SECONDS), strict=False))


def quantized_bytes(
    quantized: Bytes, phase: str, width: int, *, seconds: bool = False
) -> NDArray[np.float64]:
    """The inputs as the kernels that multiply bytes see them."""
    blocks = input_blocks(quantized, phase, as_bytes=True)
    values = blocks[..., :256].copy().view(np.int8).astype(np.float64)
    scales = blocks[..., 256:288].copy().view(np.float32).astype(np.float64)
    seen = values * scales.repeat(32, axis=-1)
    if seconds:
        for column, stretch in np.ndindex(*seen.shape[:2]):
            for g, second in second_bytes(blocks[column, stretch]).items():
                added = second["values"] * np.float64(second["scale"])
                seen[column, stretch, g * 32 : g * 32 + 32] += added
    return seen.reshape(len(quantized), -1)[:, :width]


def quantized_values(quantized: Bytes, phase: str, width: int) -> NDArray[np.float64]:
    """The inputs as all other kernels see them."""
    blocks = input_blocks(quantized, phase)
    values = blocks[..., :VALUES].copy().view(np.int16).astype(np.float64)
    scales = blocks[..., SCALE : SCALE + 4].copy().view(np.float32).astype(np.float64)
    return (values * scales).reshape(len(quantized), -1)[:, :width]


@dataclass(frozen=True)
class Product:
    """One weight, and what it gives for inputs."""

    name: str
    phase: str
    weight: Bytes
    copy: Bytes | None = None  # of the weight, interleaved

    def __call__(self, values: Floats, begin: int = 0, end: int | None = None) -> Floats:
        rows = len(self.weight)
        out = np.full((len(values), rows), np.nan, np.float32)
        native, precision = of_phase(self.phase)
        _native.linear(
            TYPES[self.name][0],
            native,
            self.weight if self.copy is None else self.copy,
            values,
            quantize(self.name, self.phase, values),
            begin,
            rows if end is None else end,
            out,
            precision,
            interleaved=self.copy is not None,
        )
        return out

    def operands(self, values: Floats) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        w = decode(self.name, self.weight, values.shape[1])
        if self.name in FLOATS:
            return w, values.astype(np.float64)
        if in_tiles(self.name, self.phase):
            return to_bf16(w), to_bf16(values.astype(np.float64))
        quantized = quantize(self.name, self.phase, values)
        if in_bytes(self.name, self.phase):
            seen = quantized_bytes(
                quantized, self.phase, values.shape[1], seconds=self.name in SMALL
            )
            return w, seen[: len(values)]
        return w, quantized_values(quantized, self.phase, values.shape[1])[: len(values)]

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


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", FORMATS)
def test_neighbours_change_no_bit(name: str, phase: str) -> None:
    """Not the number of columns, not their order, not the range of rows."""
    rng = np.random.default_rng(2)
    width, rows, columns = widths(name)[-1], 43, 21
    product = Product(name, phase, random_weight(name, rows, width, rng))
    values = rng.standard_normal((columns, width)).astype(np.float32)
    whole = product(values)
    for count in [1, 2, 3, 5, 8, 11, 16]:
        np.testing.assert_array_equal(product(values[:count]), whole[:count])
    order = rng.permutation(columns)
    np.testing.assert_array_equal(product(np.ascontiguousarray(values[order])), whole[order])
    for begin, end in [(0, 1), (1, 18), (7, 43), (42, 43), (5, 5)]:
        part = product(values[:3], begin, end)
        np.testing.assert_array_equal(part[:, begin:end], whole[:3, begin:end])
        assert np.isnan(part[:, :begin]).all()
        assert np.isnan(part[:, end:]).all()


@pytest.mark.parametrize("phase", PHASES)
def test_many_columns_change_no_bit(phase: str) -> None:
    """More columns than share one unpacking of a panel."""
    rng = np.random.default_rng(3)
    product = Product("Q4_K", phase, random_weight("Q4_K", 5, 256, rng))
    values = rng.standard_normal((1100, 256)).astype(np.float32)
    whole = product(values)
    product.check(values)
    np.testing.assert_array_equal(product(values[1050:1053]), whole[1050:1053])


def with_outliers(columns: int, width: int, rng: np.random.Generator) -> Floats:
    """Inputs of which some are far larger than the others, as in real models."""
    values = rng.standard_normal((columns, width)) * np.exp(rng.standard_normal((columns, width)))
    values[:, rng.integers(0, width, width // 60)] *= 20
    return values.astype(np.float32)


@pytest.mark.parametrize("name", sorted(TURNED | SMALL))
def test_products_of_bytes_are_the_same_in_both_phases(name: str) -> None:
    if not (in_bytes(name, "fast generation") and in_bytes(name, "fast prompt")):
        pytest.skip("this instruction set does not multiply bytes in both")
    rng = np.random.default_rng(11)
    width = 768 if name in TURNED else 800
    weight = random_weight(name, 53, width, rng)
    values = with_outliers(19, width, rng)
    prompt = Product(name, "fast prompt", weight)(values)
    for count in [1, 2, 4, 8, 9, 16, 17, 19]:
        generated = Product(name, "fast generation", weight)(values[:count])
        np.testing.assert_array_equal(generated, prompt[:count])


@pytest.mark.parametrize("name", HALVES)
def test_an_interleaved_copy_gives_the_same_bits(name: str) -> None:
    number, block, _ = TYPES[name]
    together = _native.interleaved_rows(number, FAST)
    assert _native.interleaved_rows(number, EXACT) == 0
    assert bool(together) == in_bytes(name, "fast generation")
    if not together:
        pytest.skip("there is no such copy")
    rng = np.random.default_rng(12)
    width, rows = 512 + block % 256 * 3, 112
    weight = random_weight(name, rows, width, rng)
    copy = aligned((rows, _native.interleaved_row_bytes(number, width, FAST)))
    _native.interleave(number, weight, width, copy, FAST)
    values = with_outliers(19, width, rng)
    for phase in ["fast generation", "fast prompt"]:
        if not in_bytes(name, phase):
            continue  # it reads the rows
        for columns in [1, 2, 3, 8, 9, 19]:
            whole = Product(name, phase, weight)(values[:columns])
            copied = Product(name, phase, weight, copy)
            np.testing.assert_array_equal(copied(values[:columns]), whole)
            part = copied(values[:columns], 16, 93)
            np.testing.assert_array_equal(part[:, 16:93], whole[:, 16:93])
            assert np.isnan(part[:, :16]).all()
            assert np.isnan(part[:, 93:]).all()


def extreme_weights(name: str, width: int, rng: np.random.Generator) -> Bytes:
    """Rows with every bit of q and scale clear, set, or at the most negative product."""
    _, weights, size = TYPES[name]
    blocks = rng.integers(0, 256, (12, width // weights, size), dtype=np.uint8)
    blocks[:4] = 0x00
    blocks[4:8] = 0xFF
    if name == "Q6_K":  # q of -32 under scales of -128
        blocks[:4, :, 192:208] = 0x80
    flat = blocks.reshape(-1, size)
    set_factors(name, flat, rng)
    return flat.reshape(12, -1)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", HALVES)
def test_largest_sums_do_not_overflow(name: str, phase: str) -> None:
    """Inputs at full amplitude whose signs are those of a row, so that every product adds."""
    rng = np.random.default_rng(4)
    width = 1024
    product = Product(name, phase, extreme_weights(name, width, rng))
    values = np.where(decode(name, product.weight, width) < 0, -1, 1).astype(np.float32)
    w, x = product.operands(values)
    product.check(values)
    np.testing.assert_allclose(np.diag(product(values)), np.abs(w).sum(axis=1), rtol=1e-5)
    assert np.all(np.abs(x) > 0.9999)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", ["Q4_K", "Q6_K", "Q8_0", "Q4_1", "NVFP4", "F16"])
def test_unusual_inputs(name: str, phase: str) -> None:
    rng = np.random.default_rng(5)
    width = 1024
    product = Product(name, phase, random_weight(name, 20, width, rng))
    values = rng.standard_normal((6, width)).astype(np.float32)
    values[0] = 0
    values[1, 300] = 1e30  # one outlier leaves its own block of 256 only
    values[2] *= np.float32(1e-38)  # subnormal
    values[3] *= np.float32(1e-33)
    values[4, :512] = 0
    product.check(values, tolerance=1e-5)
    assert not np.any(product(values)[0])


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", ["Q4_K", "Q8_0", "NVFP4", "BF16"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stays_none(name: str, phase: str, bad: float) -> None:
    """A NaN or an infinity spoils its own column, all of it, and no other."""
    rng = np.random.default_rng(6)
    product = Product(name, phase, random_weight(name, 9, 768, rng))
    values = rng.standard_normal((3, 768)).astype(np.float32)
    good = product(values)
    values[1, 400] = bad
    out = product(values)
    assert not np.isfinite(out[1]).any()
    np.testing.assert_array_equal(out[[0, 2]], good[[0, 2]])


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", ["Q4_K", "Q5_K", "Q8_0", "IQ3_S"])
def test_zero_weights(name: str, phase: str) -> None:
    _, weights, size = TYPES[name]
    product = Product(name, phase, np.zeros((6, 512 // weights * size), np.uint8))
    assert not np.any(product(np.random.default_rng(7).standard_normal((3, 512), np.float32)))


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("width", [1, 31, 256, 700])
def test_quantized_inputs(phase: str, width: int) -> None:
    """Each value is off by at most half a step, and the sums are those of the values."""
    if in_tiles("NVFP4", phase):
        pytest.skip("tiles hold BF16, which the products check")
    values = np.random.default_rng(8).standard_normal((4, width)).astype(np.float32)
    quantized = quantize("NVFP4", phase, values)
    assert quantized.shape[1] % 64 == 0
    seen = quantized_values(quantized, phase, -(-width // 256) * 256)[:4]
    padded = np.pad(values, [(0, 0), (0, seen.shape[1] - width)]).astype(np.float64)
    steps = np.abs(padded.reshape(4, -1, 256)).max(axis=2) / AMPLITUDE[phase]
    error = np.abs(seen - padded).reshape(4, -1, 256).max(axis=2)
    assert np.all(error <= 0.502 * steps)
    assert np.all(seen[:, width:] == 0)
    blocks = input_blocks(quantized, phase)[:4]
    for group, offset in [(16, VALUES), (32, VALUES + 64)]:
        sums = blocks[..., offset : offset + 1024 // group].copy().view(np.float32)
        expected = seen.reshape(4, -1, group).sum(axis=2)
        np.testing.assert_allclose(sums.reshape(4, -1), expected, rtol=1e-6, atol=1e-9)


def test_inputs_as_bytes() -> None:
    """Each value is off by at most half a step of its 32, and the sums are those of the values."""
    if not in_bytes("Q4_K", "fast prompt"):
        pytest.skip("this instruction set has no products of bytes")
    values = np.random.default_rng(8).standard_normal((4, 768)).astype(np.float32)
    values[:, 32:64] *= 1000  # an outlier takes precision from its own 32 values only
    quantized = quantize("Q4_K", "fast prompt", values)
    seen = quantized_bytes(quantized, "fast prompt", 768)[:4]
    steps = np.abs(values.astype(np.float64).reshape(4, -1, 32)).max(axis=2) / 127
    error = np.abs(seen - values).reshape(4, -1, 32).max(axis=2)
    assert np.all(error <= 0.502 * steps)
    blocks = input_blocks(quantized, "fast prompt", as_bytes=True)[:4]
    integers = blocks[..., :256].copy().view(np.int8).astype(np.int64)
    for group, sums, totals in [(32, 288, 384), (16, 320, 400)]:
        size = 1024 // group
        found = blocks[..., sums : sums + size].copy().view(np.float32)
        expected = seen.reshape(4, -1, group).sum(axis=2)
        np.testing.assert_allclose(found.reshape(4, -1), expected, rtol=1e-6, atol=1e-5)
        found = blocks[..., totals : totals + size // 2].copy().view(np.int16)
        np.testing.assert_array_equal(
            found.reshape(4, -1), integers.reshape(4, -1, group).sum(axis=2)
        )


@pytest.mark.parametrize("width", [96, 768, 800])
def test_second_bytes(width: int) -> None:
    """Groups far above the mean have them, four of a block at most: those that need them most."""
    if not in_bytes("Q4_0", "fast generation"):
        pytest.skip("this instruction set has no products of bytes")
    rng = np.random.default_rng(12)
    values = with_outliers(40, width, rng)
    values[1, :288] = np.repeat(np.linspace(10, 11, 9), 32)[: min(width, 288)]  # nine of them
    values[2] = 0
    values[3] = 1  # all alike
    values[4, 7] = np.nan
    values[5, 9] = np.inf
    values[6] *= np.float32(1e25)  # squares overflow
    quantized = quantize("Q4_0", "fast generation", values)
    blocks = input_blocks(quantized, "fast generation", as_bytes=True)
    first = quantized_bytes(quantized, "fast generation", width)
    both = quantized_bytes(quantized, "fast generation", width, seconds=True)
    counted = 0
    for column in range(len(values)):
        scale = blocks[column, :, 256:288].copy().view(np.float32).reshape(-1)
        with np.errstate(over="ignore", invalid="ignore"):
            energy = scale * scale
            above = energy > np.float32(1.5) * energy.sum() * np.float32(32 / width)
        for stretch in range(blocks.shape[1]):
            here = slice(8 * stretch, 8 * stretch + 8)
            wanted = sorted(np.flatnonzero(above[here]), key=lambda g: -scale[here][g])[:4]
            found = second_bytes(blocks[column, stretch])
            assert sorted(found) == sorted(wanted), (column, stretch)
            for g, second in found.items():
                at = slice(256 * stretch + 32 * g, min(width, 256 * stretch + 32 * g + 32))
                error = np.abs(values[column, at] - both[column, at]).max()
                assert error <= np.abs(values[column, at] - first[column, at]).max() / 200
                assert second["total"] == second["values"].sum()
                counted += 1
    assert counted > 20


@pytest.mark.parametrize("name", sorted(SMALL))
def test_outliers_keep_their_neighbours_exact(name: str) -> None:
    """Second bytes leave less than half of the error, in root mean square."""
    if not in_bytes(name, "fast generation"):
        pytest.skip("this instruction set has no products of bytes")
    rng = np.random.default_rng(13)
    width = 992
    product = Product(name, "fast generation", random_weight(name, 40, width, rng))
    values = with_outliers(8, width, rng)
    w = decode(name, product.weight, width)
    exact = values.astype(np.float64) @ w.T
    quantized = quantize(name, product.phase, values)
    one_byte = quantized_bytes(quantized, product.phase, width)[: len(values)] @ w.T
    assert np.linalg.norm(product(values) - exact) < np.linalg.norm(one_byte - exact) / 2
    product.check(values)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", FORMATS)
def test_near_the_exact_product(name: str, phase: str) -> None:
    """Against inputs as they were: the error that rounding them can make, and no more."""
    rng = np.random.default_rng(9)
    width = 1024
    product = Product(name, phase, random_weight(name, 24, width, rng))
    values = rng.standard_normal((5, width)).astype(np.float32)
    w = decode(name, product.weight, width)
    exact = values.astype(np.float64) @ w.T
    step = np.abs(values).max() / (127 if in_bytes(name, phase) else AMPLITUDE[phase])
    # Rounding errors are uniform in half a step either way; six sigma of their sum.
    sigma = step / np.sqrt(12) * np.linalg.norm(w, axis=1)
    if in_tiles(name, phase) and name not in FLOATS:  # 2^-9 of each factor at most
        sigma = 2**-9 * np.sqrt((values.astype(np.float64) ** 2) @ (w**2).T)
    bound = 6 * sigma + 1e-6 * (np.abs(values) @ np.abs(w).T)
    assert np.all(np.abs(product(values) - exact) <= bound)


def test_unaligned_weights() -> None:
    """A file aligns a tensor, but a row starts where the one before it ends."""
    rng = np.random.default_rng(10)
    for name in ["Q4_K", "Q6_K", "Q8_0", "F16", "F32"]:
        width = 512
        weight = random_weight(name, 9, width, rng)
        shifted = np.zeros(weight.size + 2, np.uint8)[2:].reshape(weight.shape)
        shifted[:] = weight
        values = rng.standard_normal((2, width)).astype(np.float32)
        for phase in PHASES:
            whole = Product(name, phase, weight)(values)
            np.testing.assert_array_equal(Product(name, phase, shifted)(values), whole)


def test_shapes_are_checked() -> None:
    weight = np.zeros((4, 144), np.uint8)
    values = np.zeros((2, 256), np.float32)
    quantized = quantize("Q4_K", "prompt", values)
    out = np.zeros((2, 4), np.float32)
    q4_k = TYPES["Q4_K"][0]
    good = (q4_k, "prompt", weight, values, quantized, 0, 4, out, EXACT)
    _native.linear(*good)
    for position, wrong in [
        (0, 99),
        (0, TYPES["I8"][0]),
        (1, "decode"),
        (2, weight[:, :100].copy()),
        (3, np.zeros((2, 512), np.float32)),
        (3, np.zeros((2, 100), np.float32)),
        (4, quantized[:1].copy()),
        (5, -1),
        (6, 5),
        (7, np.zeros((2, 5), np.float32)),
    ]:
        arguments = list(good)
        arguments[position] = wrong
        with pytest.raises((ValueError, TypeError)):
            _native.linear(*arguments)
