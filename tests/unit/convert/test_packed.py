"""Quantized checkpoints: FP8, MXFP4, AWQ and GPTQ, against the plain formula of each."""

from pathlib import Path

import numpy as np
import pytest

from checkpoints import write_safetensors
from ingot.convert.matrices import PlainMatrix
from ingot.convert.packed import Mxfp4Matrix, unpacked
from ingot.convert.safetensors import StoredTensor, read_safetensors
from ingot.convert.tensors import FileTensor, _Piece
from ingot.errors import ConversionError
from ingot.gguf import GgmlType
from ingot.quant import decode, encode

RNG = np.random.default_rng(3)


def matrix_of(path: Path, name: str, config: dict) -> np.ndarray:
    tensor = unpacked(read_safetensors(path), config)[name]
    matrix = PlainMatrix(tensor) if isinstance(tensor, StoredTensor) else tensor
    rows = int(np.prod(matrix.shape[:-1]))
    whole = matrix.read(np.arange(rows))
    picked = np.array([rows - 1, 0, rows // 2])
    np.testing.assert_array_equal(matrix.read(picked), whole[picked])
    return whole.reshape(matrix.shape)


def e4m3(code: int) -> float:
    sign, exponent, mantissa = code >> 7, code >> 3 & 15, code & 7
    size = (mantissa / 8) * 2**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -size if sign else size


@pytest.mark.parametrize(
    ("scale_shape", "ending"),
    [((2, 3), "_scale_inv"), ((), "_scale"), ((1,), "_scale"), ((200, 1), "_scale")],
)
def test_fp8(scale_shape: tuple[int, ...], ending: str, tmp_path: Path) -> None:
    codes = RNG.integers(0, 126, (200, 300)).astype(np.uint8)
    codes |= RNG.integers(0, 2, codes.shape).astype(np.uint8) << 7
    scales = RNG.uniform(0.5, 2, scale_shape).astype("f4")
    names = {"w.weight": codes, f"w.weight{ending}": scales}
    write_safetensors(tmp_path / "x", names, {"w.weight": "F8_E4M3"})
    found = matrix_of(tmp_path / "x", "w.weight", {"quantization_config": {"quant_method": "fp8"}})
    plain = np.array([e4m3(int(code)) for code in codes.flat]).reshape(codes.shape)
    blocks = scale_shape == (2, 3)
    whole = scales.repeat(128, 0).repeat(128, 1)[:200, :300] if blocks else scales
    np.testing.assert_array_equal(found, (plain.astype("f4") * whole).astype("f4"))


def test_fp8_of_the_other_kind(tmp_path: Path) -> None:
    codes = np.array([[0x3C, 0xC0, 0x01, 0x00]], np.uint8)
    write_safetensors(tmp_path / "x", {"w.weight": codes}, {"w.weight": "F8_E5M2"})
    np.testing.assert_array_equal(
        matrix_of(tmp_path / "x", "w.weight", {}), [[1.0, -2.0, 2.0**-16, 0.0]]
    )


def test_mxfp4_is_kept_exactly(tmp_path: Path) -> None:
    blocks = RNG.integers(0, 256, (3, 4, 2, 16)).astype(np.uint8)
    scales = RNG.integers(100, 140, (3, 4, 2)).astype(np.uint8)
    write_safetensors(tmp_path / "x", {"w_blocks": blocks, "w_scales": scales})
    found = matrix_of(tmp_path / "x", "w_blocks", {})
    levels = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    value = np.array([*levels, *(-level for level in levels)])
    for at in np.ndindex(3, 4, 2):
        numbers = [nibble for byte in blocks[at] for nibble in (byte & 15, byte >> 4)]
        expected = value[numbers] * 2.0 ** (int(scales[at]) - 127)
        first = 32 * at[2]
        np.testing.assert_array_equal(found[at[0], at[1], first : first + 32], expected)
    kept = decode(encode(found, GgmlType.MXFP4), GgmlType.MXFP4, found.shape)
    np.testing.assert_array_equal(kept, found)
    tensors = unpacked(read_safetensors(tmp_path / "x"), {})
    matrix = tensors["w_blocks"]
    assert isinstance(matrix, Mxfp4Matrix)
    tensor = FileTensor("w", matrix.shape, (_Piece(matrix, None, matrix.shape),), None)
    assert tensor.kept_type is GgmlType.MXFP4


INPUTS, OUTPUTS, GROUP = 64, 16, 32
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def pack_columns(values: np.ndarray, order: list[int]) -> np.ndarray:
    """[rows, columns] of four bits, eight columns in a word."""
    words = np.zeros((values.shape[0], values.shape[1] // 8), np.uint32)
    for word in range(words.shape[1]):
        for place, column in enumerate(order):
            words[:, word] |= values[:, 8 * word + column].astype(np.uint32) << (4 * place)
    return words.view(np.int32)


def pack_rows(values: np.ndarray, bits: int) -> np.ndarray:
    """[rows, columns], several rows in a word."""
    per = 32 // bits
    words = np.zeros((values.shape[0] // per, values.shape[1]), np.uint32)
    for place in range(per):
        words |= values[place::per].astype(np.uint32) << (bits * place)
    return words.view(np.int32)


def test_awq(tmp_path: Path) -> None:
    numbers = RNG.integers(0, 16, (INPUTS, OUTPUTS))
    zeros = RNG.integers(0, 16, (INPUTS // GROUP, OUTPUTS))
    scales = RNG.uniform(0.01, 0.1, zeros.shape).astype("f2")
    write_safetensors(
        tmp_path / "x",
        {
            "w.qweight": pack_columns(numbers, AWQ_ORDER),
            "w.qzeros": pack_columns(zeros, AWQ_ORDER),
            "w.scales": scales,
        },
    )
    config = {"quantization_config": {"quant_method": "awq", "bits": 4, "version": "gemm"}}
    found = matrix_of(tmp_path / "x", "w.weight", config)
    wide = (numbers - zeros.repeat(GROUP, 0)) * scales.astype("f4").repeat(GROUP, 0)
    np.testing.assert_array_equal(found, wide.T.astype("f4"))


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("version", ["gptq", "gptq_v2"])
def test_gptq(bits: int, version: str, tmp_path: Path) -> None:
    top = 1 << bits
    numbers = RNG.integers(0, top, (INPUTS, OUTPUTS))
    zeros = RNG.integers(0, top, (INPUTS // GROUP, OUTPUTS))
    scales = RNG.uniform(0.01, 0.1, zeros.shape).astype("f2")
    groups = RNG.permutation(np.arange(INPUTS) // GROUP).astype("i4")
    write_safetensors(
        tmp_path / "x",
        {
            "w.qweight": pack_rows(numbers, bits),
            "w.qzeros": np.ascontiguousarray(pack_rows(zeros.T, bits).T),
            "w.scales": scales,
            "w.g_idx": groups,
        },
    )
    config = {
        "quantization_config": {"quant_method": "gptq", "bits": bits, "checkpoint_format": version}
    }
    found = matrix_of(tmp_path / "x", "w.weight", config)
    offset = 1 if version == "gptq" else 0
    wide = (numbers - (zeros[groups] + offset)) * scales.astype("f4")[groups]
    np.testing.assert_array_equal(found, wide.T.astype("f4"))


@pytest.mark.parametrize(
    ("quantization", "reason"),
    [
        ({"quant_method": "bitsandbytes"}, "'bitsandbytes' are not supported"),
        ({"quant_method": "gptq", "bits": 3}, "3 bits"),
        ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "'gemm'"),
    ],
)
def test_other_quantizations_are_refused(quantization: dict, reason: str) -> None:
    with pytest.raises(ConversionError, match=reason):
        unpacked({}, {"quantization_config": quantization})
