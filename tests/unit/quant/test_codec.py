"""decode and encode: what they accept, the shapes they return, and what they refuse."""

import mmap

import numpy as np
import pytest

from ingot import _native
from ingot.errors import QuantError
from ingot.gguf import GgmlType
from ingot.quant import decode, encode, format_of, formats

F32, Q4_0, Q4_K, IQ1_S = GgmlType.F32, GgmlType.Q4_0, GgmlType.Q4_K, GgmlType.IQ1_S


@pytest.fixture
def blocks():
    """Six blocks of Q4_0 with scales that are ordinary numbers."""
    rng = np.random.default_rng(11)
    made = rng.integers(0, 256, (6, 18), dtype=np.uint8)
    made[:, :2] = rng.standard_normal((6, 1)).astype(np.float16).view(np.uint8)
    return made


def test_shape_defaults_to_one_row(blocks):
    assert decode(blocks, Q4_0).shape == (192,)


@pytest.mark.parametrize("shape", [(192,), (6, 32), (2, 96), (3, 2, 32), (1, 192)])
def test_shape_is_kept(blocks, shape):
    expected = format_of(Q4_0).decode_blocks(blocks).reshape(shape)
    np.testing.assert_array_equal(decode(blocks, Q4_0, shape), expected)


def test_a_single_value_and_no_value():
    assert decode(np.float32(2.5).tobytes(), F32, ()).item() == 2.5
    assert decode(b"", Q4_0).shape == (0,)
    assert decode(b"", Q4_0, (0, 32)).shape == (0, 32)
    assert decode(b"", Q4_0, (4, 0)).shape == (4, 0)


def test_any_buffer_will_do(blocks):
    expected = decode(blocks, Q4_0)
    raw = blocks.tobytes()
    mapped = mmap.mmap(-1, len(raw))
    mapped.write(raw)
    frozen = blocks.copy()
    frozen.flags.writeable = False
    apart = np.zeros((6, 36), np.uint8)[:, ::2]
    apart[:] = blocks
    words = blocks.view(np.uint16)
    for data in (raw, bytearray(raw), memoryview(raw), memoryview(mapped), frozen, apart, words):
        np.testing.assert_array_equal(decode(data, Q4_0), expected)


def test_the_result_is_a_new_array():
    source = np.arange(4, dtype=np.float32)
    decoded = decode(source, F32)
    decoded[0] = 9
    assert source[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((bytes(17), Q4_0), "Q4_0: 17 bytes are not whole blocks of 18"),
        ((bytes(36), Q4_0, (63,)), "Q4_0: rows of 63 weights are not whole blocks of 32"),
        ((bytes(36), Q4_0, (4, 16)), "Q4_0: rows of 16 weights are not whole blocks of 32"),
        ((bytes(36), Q4_0, (3, 32)), r"36 bytes hold 64 weights, shape \[3, 32\] needs 96"),
        ((bytes(36), Q4_0, (-2, -32)), "has a negative size"),
        ((bytes(36), 77), "unknown tensor type 77"),
        ((bytes(36), -1), "unknown tensor type -1"),
        ((bytes(36), Q4_0, None, 0), "threads is 0; it must be at least 1"),
    ],
)
def test_decode_refuses(arguments, message):
    with pytest.raises(QuantError, match=message):
        decode(*arguments)


@pytest.mark.parametrize("shape", [(64,), (2, 64), (3, 1, 32), (0, 32)])
def test_encode_keeps_the_leading_shape(shape):
    values = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    encoded = encode(values, Q4_0)
    assert encoded.dtype == np.uint8
    assert encoded.shape == (*shape[:-1], shape[-1] // 32 * 18)
    expected = format_of(Q4_0).encode_blocks(values.reshape(-1, 32))
    np.testing.assert_array_equal(encoded.reshape(-1, 18), expected)


def test_encode_takes_other_floats_and_views():
    values = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float16)
    expected = encode(values.astype(np.float32), Q4_0)
    frozen = values.astype(np.float32)
    frozen.flags.writeable = False
    for given in (values, values.astype(np.float64), values.tolist(), frozen):
        np.testing.assert_array_equal(encode(given, Q4_0), expected)
    np.testing.assert_array_equal(encode(values[:, ::-1][:, ::-1], Q4_0), expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(100), Q4_K), "Q4_K: rows of 100 weights are not whole blocks of 256"),
        ((np.zeros((8, 32)), Q4_K), "Q4_K: rows of 32 weights are not whole blocks of 256"),
        ((np.zeros(256), GgmlType.I8), "I8 cannot be encoded; these can: .*F16.*Q4_0"),
        ((np.zeros(32), 77), "unknown tensor type 77"),
        ((np.zeros(32), Q4_0, -1), "threads is -1; it must be at least 1"),
    ],
)
def test_encode_refuses(arguments, message):
    with pytest.raises(QuantError, match=message):
        encode(*arguments)


def test_formats_are_found_by_number():
    assert format_of(12).type.name == "Q4_K"
    assert set(formats()) == set(GgmlType)
    with pytest.raises(TypeError):
        formats()[0] = format_of(Q4_0)


def test_an_unknown_grid_is_refused():
    with pytest.raises(ValueError, match="no grid named IQ9"):
        _native.grid("IQ9")


def test_grids_cannot_be_written():
    with pytest.raises(ValueError, match="read-only"):
        _native.grid("IQ3_S")[0, 0] = 0
