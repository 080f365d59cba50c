"""The numbers of the format are those of the native table and of the `gguf` package."""

import gguf
import numpy as np

from ingot import _native
from ingot.gguf import GgmlType, ValueType


def test_tensor_types_are_those_of_the_native_table() -> None:
    table = {name: number for name, number, _, _ in _native.tensor_types()}
    assert {kind.name: kind.value for kind in GgmlType} == table


def test_tensor_types_are_those_of_the_gguf_package() -> None:
    for kind in set(GgmlType) - {GgmlType.Q2_0}:  # which is newer
        theirs = gguf.GGMLQuantizationType[kind.name]
        assert theirs.value == kind.value
        assert gguf.GGML_QUANT_SIZES[theirs] == (kind.block_size, kind.block_bytes)


def test_value_types_are_those_of_the_gguf_package() -> None:
    ours = {kind.name: kind.value for kind in ValueType}
    assert ours == {kind.name: kind.value for kind in gguf.GGUFValueType}


def test_value_sizes() -> None:
    sizes = {
        kind.name: np.dtype(kind.dtype).itemsize
        for kind in ValueType
        if kind not in (ValueType.STRING, ValueType.ARRAY)
    }
    for name, size in sizes.items():
        bits = int("".join(filter(str.isdigit, name)) or 8)
        assert size * 8 == bits
