"""The NumPy encoders give the bytes of the `gguf` package, on ordinary and on odd weights."""

import gguf
import numpy as np
import pytest
from gguf import quants as gguf_quants
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ingot.errors import QuantError
from ingot.quant import BlockFormat, formats

BY_NAME = {block.type.name: block for block in formats().values()}
LEGACY = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
ENCODED = ["F32", "F16", "BF16", *LEGACY, "TQ1_0", "TQ2_0", "MXFP4"]
BLOCKS = 40


def oracle(block: type[BlockFormat], weights: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        encoded = gguf_quants.quantize(weights, gguf.GGMLQuantizationType(block.type))
    return encoded.view(np.uint8).reshape(-1, block.type.block_bytes)


def assert_same_bytes(block: type[BlockFormat], weights: np.ndarray) -> None:
    weights = weights.astype(np.float32).reshape(-1, block.type.block_size)
    actual, expected = block.encode_blocks(weights), oracle(block, weights)
    assert actual.dtype == np.uint8
    wrong = np.flatnonzero((actual != expected).any(axis=1))
    assert not wrong.size, (
        f"{wrong.size} of {len(weights)} blocks differ, the first: {actual[wrong[0]].tobytes()!r}, "
        f"expected {expected[wrong[0]].tobytes()!r}"
    )


def scaled(factor: float) -> np.ndarray:
    noise = np.random.default_rng(3).standard_normal((BLOCKS, 256))
    return np.clip(noise * factor, -3.4e38, 3.4e38)


def ties() -> np.ndarray:
    """Whole and half multiples of a power of two: every rounding rule is asked."""
    steps = np.random.default_rng(4).integers(-254, 255, (BLOCKS, 256)) / 2
    steps[:, 0], steps[:, 1] = 127, -128
    return steps * 2.0 ** np.arange(-20, BLOCKS - 20)[:, None]


def around_halves() -> np.ndarray:
    """Half steps under a scale of exactly 1 (of Q8_0), and their neighbours on either side."""
    halves = np.arange(-123.5, 124, dtype=np.float32).reshape(8, 31)
    below, above = np.nextafter(halves, np.float32(-128)), np.nextafter(halves, np.float32(128))
    blocks = np.full((3, 8, 32), 127, np.float32)
    blocks[..., 1:] = below, halves, above
    return blocks


def cut_bits() -> np.ndarray:
    """Singles whose lower half lies at, below and above the middle between two BF16."""
    upper = np.arange(0x7F00, dtype=np.uint32)[:, None] << 16
    singles = upper | np.array([0x7FFF, 0x8000, 0x8001], np.uint32)
    return singles.view(np.float32).reshape(-1, 256)


def below_powers_of_two() -> np.ndarray:
    """Largest magnitudes a few units below a power of two, where exponents turn over."""
    powers = np.float32(2) ** np.arange(-120, 120, dtype=np.float32)
    bits = powers.view(np.uint32)[:, None] - np.arange(5, dtype=np.uint32)
    blocks = scaled(1e-3)[:1] * np.ones((bits.size, 1))
    blocks *= bits.view(np.float32).reshape(-1, 1)
    blocks[:, ::32] = bits.view(np.float32).reshape(-1, 1)
    return blocks


WEIGHTS = {
    "normal": scaled(1),
    "small": scaled(1e-6),
    "beyond half": scaled(1e6),
    "huge": scaled(1e38),
    "tiny": scaled(1e-38),
    "subnormal": scaled(1e-41),
    "smallest": scaled(1e-45),
    "mixed": scaled(1) * 10.0 ** np.random.default_rng(5).uniform(-40, 38, (BLOCKS, 1)),
    "zeros": np.zeros((2, 256)),
    "negative zeros": -np.zeros((2, 256)),
    "ones": np.ones((2, 256)),
    "minus ones": -np.ones((2, 256)),
    "one among zeros": np.eye(64, 256, 3),
    "both ends": np.tile([3.0, -3.0, 0.0, 1.5], (4, 64)),
    "both ends, negative first": np.tile([-3.0, 3.0, 0.0, 1.5], (4, 64)),
    "ties": ties(),
    "around halves": around_halves(),
    "cut bits": cut_bits(),
    "below powers of two": below_powers_of_two(),
}


@pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS.keys())
@pytest.mark.parametrize("name", ENCODED)
def test_bytes_of_gguf(name, weights):
    with np.errstate(all="ignore"):
        assert_same_bytes(BY_NAME[name], weights.clip(-3.4e38, 3.4e38))


@settings(deadline=None, max_examples=40)
@given(
    weights=arrays(
        np.float32, (1, 256), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)
    )
)
@pytest.mark.parametrize("name", ENCODED)
def test_any_finite_weights(name, weights):
    assert_same_bytes(BY_NAME[name], weights)


@pytest.mark.parametrize("name", sorted(set(BY_NAME) - {*ENCODED, "Q1_0"}))
def test_others_say_that_they_have_none(name):
    block = BY_NAME[name]
    with pytest.raises(QuantError, match=f"{name} has no encoder in NumPy"):
        block.encode_blocks(np.zeros((1, block.type.block_size), np.float32))


@pytest.mark.parametrize("name", ["BF16", "F16"])
def test_not_finite(name):
    weights = np.array([[np.inf], [-np.inf], [np.nan]], np.float32)
    block = BY_NAME[name]
    decoded = block.decode_blocks(block.encode_blocks(weights))
    np.testing.assert_array_equal(decoded, weights)


def test_bf16_nan_whose_payload_is_cut_stays_a_nan():
    weights = np.array([[0x7F800001]], np.uint32).view(np.float32)
    bf16 = BY_NAME["BF16"]
    assert np.isnan(bf16.decode_blocks(bf16.encode_blocks(weights)))
    assert_same_bytes(bf16, weights)


def test_wrong_shapes_are_named():
    q4_0 = BY_NAME["Q4_0"]
    with pytest.raises(
        QuantError, match=r"Q4_0: expected float32 \[n, 32\], got float32 \[2, 31\]"
    ):
        q4_0.encode_blocks(np.zeros((2, 31), np.float32))
    with pytest.raises(QuantError, match=r"Q4_0: expected uint8 \[n, 18\], got int8 \[1, 18\]"):
        q4_0.decode_blocks(np.zeros((1, 18), np.int8))
