"""Native encoders of the types the `gguf` package encodes give its bytes; Q1_0 those of NumPy.

On every instruction set this CPU supports, on ordinary weights and on those where a
rounding rule, an overflow or a logarithm decides.
"""

import platform

import gguf
import numpy as np
import pytest
from gguf import quants as gguf_quants
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot import _native
from ingot.gguf import GgmlType
from ingot.quant import decode, encode, format_of
from run_batches import using_isa

LEGACY = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
TERNARY = ["TQ1_0", "TQ2_0"]
SAME_AS_GGUF = ["F32", "F16", "BF16", *LEGACY, *TERNARY, "MXFP4"]
LARGEST = float(np.finfo(np.float32).max)


def oracle(weights: np.ndarray, type: GgmlType) -> np.ndarray:
    with np.errstate(all="ignore"):
        return gguf_quants.quantize(weights, gguf.GGMLQuantizationType(type)).view(np.uint8)


def is_defined(blocks: np.ndarray, type: GgmlType) -> np.ndarray:
    """Whether the oracle gives a block the same bytes on every CPU.

    Ours are those that it has on x86. Two things are left to the CPU: the code of a NaN that
    becomes a half float, and integers made of infinity, of which the inverse scales of blocks of
    the smallest weights are.
    """
    if platform.machine() in {"x86_64", "AMD64"}:
        return np.ones(len(blocks), bool)
    if type is GgmlType.F16:
        return ~np.isnan(blocks).any(axis=1)
    if type.name in LEGACY:
        largest = np.abs(blocks).max(axis=1)
        return (largest == 0) | (largest >= 2.0**-118)
    return np.ones(len(blocks), bool)


def assert_same_bytes(weights: np.ndarray, type: GgmlType) -> None:
    rows = weights.astype(np.float32).reshape(-1, 256)
    actual = encode(rows, type).reshape(-1, type.block_bytes)
    expected = oracle(rows, type).reshape(-1, type.block_bytes)
    differs = (actual != expected).any(axis=1)
    wrong = np.flatnonzero(differs & is_defined(rows.reshape(-1, type.block_size), type))
    assert not wrong.size, (
        f"{wrong.size} of {len(actual)} blocks differ, the first, "
        f"{rows.reshape(-1, type.block_size)[wrong[0]]}: "
        f"{actual[wrong[0]].tobytes()!r}, expected {expected[wrong[0]].tobytes()!r}"
    )


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def magnitudes() -> np.ndarray:
    """From below the smallest subnormal to the largest float, a few blocks each."""
    powers = np.repeat(10.0 ** np.arange(-46, 39), 2)[:, None]
    weights = np.clip(noise(len(powers), 256) * powers, -LARGEST, LARGEST).astype(np.float32)
    return weights + np.float32(0)  # no negative zeros


def half_steps() -> np.ndarray:
    """Multiples of half a step under scales that are powers of two: ties everywhere."""
    steps = np.random.default_rng(1).integers(-254, 255, (64, 256)) / 2
    steps[:, :2] = 127, -128
    return steps * 2.0 ** np.arange(-32, 32)[:, None]


def beside_powers_of_two() -> np.ndarray:
    """Blocks whose largest weight is a power of two or a few units next to one."""
    powers = (2.0 ** np.arange(-126, 128)).astype(np.float32)
    bits = powers.view(np.int32)[:, None] + np.arange(-50, 2, dtype=np.int32)
    largest = bits.view(np.float32).reshape(-1, 1)
    return np.where(np.arange(32) == 7, largest, largest * np.tanh(noise(1, 32)) * 0.9)


# Zeros of one sign only: where both are the minimum of a block, which of them NumPy finds
# depends on how it was built.
WEIGHTS = {
    "gaussian": noise(100, 256),
    "magnitudes": magnitudes(),
    "zeros": np.zeros(512),
    "negative zeros": -np.zeros(512),
    "constant": np.repeat([1.0, -1.0, 0.3, -65504.0, 1e-7], 256),
    "one weight": np.eye(64, 256) * noise(64, 1),
    "both extremes": np.tile([-2.0, 2.0, 0.5, 0.0, 2.0, -2.0, 1.0, -1.0], 64),
    "half steps": half_steps(),
    "beside powers of two": beside_powers_of_two(),
    "overflowing range": np.tile([LARGEST, -LARGEST, 1.0, 0.0], 64),
}


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("sample", WEIGHTS)
@pytest.mark.parametrize("name", SAME_AS_GGUF)
def test_bytes_of_gguf(name, sample):
    assert_same_bytes(WEIGHTS[sample], GgmlType[name])


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("sample", WEIGHTS)
def test_q1_0_has_the_bytes_of_numpy(sample):
    rows = WEIGHTS[sample].astype(np.float32).reshape(-1, 128)
    rows = np.concatenate([rows, np.where(np.arange(128) == 9, np.inf, rows[:1])]).astype("f4")
    expected = format_of(GgmlType.Q1_0).encode_blocks(rows)
    assert np.array_equal(encode(rows, GgmlType.Q1_0), expected)


@pytest.mark.parametrize("name", SAME_AS_GGUF)
@settings(deadline=None, max_examples=100)
@given(
    seed=st.integers(0, 2**32 - 1),
    top=st.integers(-149, 127),
    spread=st.integers(0, 60),
    mantissa=st.integers(1, 24),
    blocks=st.integers(1, 3),
)
def test_any_finite_weights(name, seed, top, spread, mantissa, blocks):
    """Weights under 2^top, over so many binades, with so many bits each (few: many ties)."""
    rng = np.random.default_rng(seed)
    steps = rng.integers(1 - 2**mantissa, 2**mantissa, 256 * blocks)
    binades = top - mantissa - rng.integers(0, spread + 1, 256 * blocks)
    weights = np.ldexp(steps.astype(np.float64), binades).astype(np.float32) + np.float32(0)
    for isa in _native.instruction_sets():
        with using_isa(isa):
            assert_same_bytes(weights, GgmlType[name])


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("name", ["F16", "BF16"])
def test_every_top_half_of_a_float(name):
    """All signs, exponents and seven bits of mantissa, with what is cut off at its extremes."""
    tops = np.arange(1 << 16, dtype=np.uint32)[:, None] << 16
    bits = tops | np.array([0, 1, 0x0FFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001, 0xFFFF], "u4")
    assert_same_bytes(bits.view(np.float32), GgmlType[name])


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("name", [*LEGACY, *TERNARY])
def test_nan_makes_its_block_nan(name):
    type = GgmlType[name]
    weights = noise(3, type.block_size).astype(np.float32)
    weights[1, 5] = np.nan
    decoded = decode(encode(weights, type), type, weights.shape)
    assert np.isnan(decoded).all(axis=1).tolist() == [False, True, False]
    assert np.isfinite(decoded[::2]).all()


@pytest.mark.usefixtures("isa")
def test_mxfp4_with_a_nan_or_infinity_has_exponent_zero():
    weights = noise(2, 32).astype(np.float32)
    weights[:, 3] = np.nan, np.inf
    assert encode(weights, GgmlType.MXFP4)[:, 0].tolist() == [0, 0]
