"""The numbers of the GGUF format: what a metadata value and a tensor may be made of.

Tensor types and their sizes come from the native table (native/formats/types.h).
"""

from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ingot import _native


class ValueType(IntEnum):
    """The type of a metadata value, or of the elements of an array."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12

    @property
    def dtype(self) -> str:
        """The NumPy type of one value as it lies in the file (not for STRING and ARRAY)."""
        return _DTYPES[self]


_DTYPES: Final = MappingProxyType(
    {
        ValueType.UINT8: "<u1",
        ValueType.INT8: "<i1",
        ValueType.UINT16: "<u2",
        ValueType.INT16: "<i2",
        ValueType.UINT32: "<u4",
        ValueType.INT32: "<i4",
        ValueType.FLOAT32: "<f4",
        ValueType.BOOL: "?",
        ValueType.UINT64: "<u8",
        ValueType.INT64: "<i8",
        ValueType.FLOAT64: "<f8",
    }
)


class GgmlType(IntEnum):
    """The type of a tensor: rows of blocks of weights.

    The members come from the native table, which collects the headers of native/formats.
    """

    vars().update({name: number for name, number, *_ in _native.tensor_types()})

    if TYPE_CHECKING:  # the names again, for editors and type checkers
        F32 = 0
        F16 = 1
        Q4_0 = 2
        Q4_1 = 3
        Q5_0 = 6
        Q5_1 = 7
        Q8_0 = 8
        Q2_K = 10
        Q3_K = 11
        Q4_K = 12
        Q5_K = 13
        Q6_K = 14
        Q8_K = 15
        IQ2_XXS = 16
        IQ2_XS = 17
        IQ3_XXS = 18
        IQ1_S = 19
        IQ4_NL = 20
        IQ3_S = 21
        IQ2_S = 22
        IQ4_XS = 23
        I8 = 24
        I16 = 25
        I32 = 26
        I64 = 27
        F64 = 28
        IQ1_M = 29
        BF16 = 30
        TQ1_0 = 34
        TQ2_0 = 35
        MXFP4 = 39
        NVFP4 = 40
        Q1_0 = 41
        Q2_0 = 42

    @property
    def block_size(self) -> int:
        """Weights per block; the length of a row is a multiple of it."""
        return _BLOCKS[self][0]

    @property
    def block_bytes(self) -> int:
        """Bytes per block."""
        return _BLOCKS[self][1]


_BLOCKS: Final = MappingProxyType(
    {number: (weights, size) for _, number, weights, size in _native.tensor_types()}
)
