"""Every type decodes to the same bits in NumPy, natively, and in the `gguf` package.

The native side runs on every instruction set this CPU supports. A NaN equals any NaN;
everything else, signs of zeros included, is compared bit by bit.
"""

import gguf
import numpy as np
import pytest
from gguf import quants as gguf_quants

from ingot import _native
from ingot.quant import BlockFormat, decode, encode, formats

BY_NAME = {block.type.name: block for block in formats().values()}

# Types the gguf package does not decode, defined here once more.
PLAIN = {"I8": np.int8, "I16": np.int16, "I32": np.int32, "I64": np.int64, "F64": np.float64}

LEGACY = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
K_QUANTS = ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
FEW_BITS = ["Q1_0", "Q2_0"]
OTHERS = ["IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4", *FEW_BITS]
ENCODED = ["F16", "BF16", *LEGACY, *K_QUANTS, *OTHERS]

# Zeros, one, the ends of the range, subnormals, infinities, quiet and signalling NaN.
SPECIAL_HALVES = np.array(
    [
        0x0000,
        0x8000,
        0x3C00,
        0x7BFF,
        0xFBFF,
        0x0001,
        0x83FF,
        0x0400,
        0x7C00,
        0xFC00,
        0x7E00,
        0xFD01,
    ],
    dtype=np.uint16,
)


@pytest.fixture(params=sorted(BY_NAME))
def block(request):
    return BY_NAME[request.param]


def oracle(block: type[BlockFormat], blocks: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        if block.type.name in PLAIN:
            return blocks.view(PLAIN[block.type.name]).astype(np.float32)
        if block.type.name == "Q8_K":
            scale = blocks[:, :4].copy().view(np.float32)
            return scale * blocks[:, 4:260].astype(np.int8).astype(np.float32)
        if block.type.name in FEW_BITS:
            scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
            return scale * few_bits(block, blocks[:, 2:])
        return gguf_quants.dequantize(blocks, gguf.GGMLQuantizationType(block.type))


def few_bits(block: type[BlockFormat], packed: np.ndarray) -> np.ndarray:
    """What the scale is multiplied by, one bit after the other."""
    bits = np.unpackbits(packed, axis=1, bitorder="little").astype(np.float32)
    return 2 * bits - 1 if block.type.name == "Q1_0" else bits[:, ::2] + 2 * bits[:, 1::2] - 1


def assert_same_bits(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.dtype == expected.dtype == np.float32
    assert actual.size == expected.size
    actual, expected = actual.reshape(-1), expected.reshape(-1)
    both_nan = np.isnan(actual) & np.isnan(expected)
    wrong = np.flatnonzero((actual.view(np.uint32) != expected.view(np.uint32)) & ~both_nan)
    assert not wrong.size, (
        f"{wrong.size} of {actual.size} differ, the first at {wrong[0]}: "
        f"{actual[wrong[0]]!r}, expected {expected[wrong[0]]!r}"
    )


def random_blocks(block: type[BlockFormat], count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([seed, block.type, count])
    return rng.integers(0, 256, (count, block.type.block_bytes), dtype=np.uint8)


def constant_blocks(block: type[BlockFormat]) -> np.ndarray:
    """All bytes zero, all bytes one, ... all bytes 0xff."""
    return np.repeat(np.arange(256, dtype=np.uint8)[:, None], block.type.block_bytes, axis=1)


def special_blocks(block: type[BlockFormat]) -> np.ndarray:
    """Random blocks with each special half at each even place, the scales' among them."""
    places = np.arange(0, block.type.block_bytes - 1, 2)
    blocks = random_blocks(block, len(places) * len(SPECIAL_HALVES), seed=1)
    grid = blocks.reshape(len(places), len(SPECIAL_HALVES), block.type.block_bytes)
    for i, place in enumerate(places):
        grid[i, :, place : place + 2] = SPECIAL_HALVES[:, None].view(np.uint8)
    return blocks


def iq1_m_specials() -> np.ndarray:
    """IQ1_M keeps its half in the top nibbles of four words."""
    blocks = random_blocks(BY_NAME["IQ1_M"], len(SPECIAL_HALVES), seed=2)
    words = blocks[:, 48:].copy().view(np.uint16) & 0x0FFF
    words |= (SPECIAL_HALVES[:, None] >> np.arange(0, 16, 4, dtype=np.uint16)) << 12
    blocks[:, 48:] = words.view(np.uint8)
    return blocks


def all_samples(block: type[BlockFormat]) -> np.ndarray:
    samples = [random_blocks(block, 301), constant_blocks(block), special_blocks(block)]
    if block.type.name == "IQ1_M":
        samples.append(iq1_m_specials())
    return np.concatenate(samples)


def test_every_type_has_a_class():
    assert set(BY_NAME) == {name for name, *_ in _native.tensor_types()}


def test_sizes_agree_with_gguf(block):
    sizes = block.type.block_size, block.type.block_bytes
    if block.type.name == "Q2_0":  # newer than the package
        assert (block.type, *sizes) == (42, 64, 18)
        return
    assert sizes == gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(block.type)]
    assert gguf.GGMLQuantizationType(block.type).name == block.type.name


def test_numpy_decodes_as_gguf(block):
    blocks = all_samples(block)
    assert_same_bits(block.decode_blocks(blocks), oracle(block, blocks))


def test_native_decodes_as_gguf(block, isa):
    blocks = all_samples(block)
    assert_same_bits(decode(blocks, block.type), oracle(block, blocks))
    assert _native.active_isa() == isa


@pytest.mark.usefixtures("isa")
def test_any_number_of_blocks(block):
    for count in (0, 1, 2, 3, 5, 17):
        blocks = random_blocks(block, count)
        assert_same_bits(decode(blocks, block.type), block.decode_blocks(blocks))


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("name", ENCODED)
def test_encoded_weights(name):
    block = BY_NAME[name]
    weights = np.random.default_rng(7).standard_normal((9, 512)).astype(np.float32)
    encoded = encode(weights, block.type)
    expected = oracle(block, encoded.reshape(-1, block.type.block_bytes))
    assert_same_bits(decode(encoded, block.type), expected)
    assert_same_bits(block.decode_blocks(encoded.reshape(-1, block.type.block_bytes)), expected)
    assert np.corrcoef(expected.reshape(-1), weights.reshape(-1))[0, 1] > 0.5


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("name", ["F16", "BF16"])
def test_every_16_bit_float(name):
    block = BY_NAME[name]
    every = np.arange(1 << 16, dtype=np.uint16).view(np.uint8).reshape(-1, 2)
    assert_same_bits(decode(every, block.type), oracle(block, every))


@pytest.mark.usefixtures("isa")
def test_unaligned_bytes(block):
    blocks = random_blocks(block, 11)
    expected = block.decode_blocks(blocks)
    for shift in (1, 2, 7):
        memory = np.zeros(blocks.size + shift, np.uint8)
        memory[shift:] = blocks.reshape(-1)
        assert memory[shift:].ctypes.data % 8 == shift
        assert_same_bits(decode(memory[shift:], block.type), expected)


def test_threads_change_nothing(block):
    # Enough for five threads (a piece is 64 KiB) and not a multiple of their number.
    blocks = random_blocks(block, 5 * (1 << 16) // block.type.block_bytes + 7)
    expected = block.decode_blocks(blocks)
    for threads in (1, 2, 5):
        assert_same_bits(decode(blocks, block.type, threads=threads), expected)
