"""IQ4: nibbles that name one of 16 unevenly spaced values, dense around zero."""

import numpy as np

from ingot.arrays import Bytes, Floats
from ingot.gguf import GgmlType
from ingot.quant.bits import fields, half_at, nibble_pairs
from ingot.quant.block import BlockFormat

_VALUES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.int8
)


class IQ4_NL(BlockFormat, type=GgmlType.IQ4_NL):
    """4.5 bits per weight: 32 weights, w = d * value[q].

    ```
    0..1   d   f16
    2..17  qs  nibbles: byte i holds weight i (low) and weight i + 16 (high)
    ```
    """

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        return half_at(blocks, 0) * _VALUES[fields(blocks[:, 2:], 4).reshape(-1, 32)]


class IQ4_XS(BlockFormat, type=GgmlType.IQ4_XS):
    """4.25 bits per weight: 256 weights, 8 groups of 32, w = d * (scale - 32) * value[q].

    ```
    0..1    d         f16
    2..3    scales_h  bits 2 * g and 2 * g + 1: the top of the scale of group g
    4..7    scales_l  a nibble per group, two neighbours in a byte: their low four bits
    8..135  qs        nibbles; 16 bytes per group, as in IQ4_NL
    ```
    """

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        high = fields(blocks[:, 2:4, None], 2).reshape(-1, 8)
        factors = (nibble_pairs(blocks[:, 4:8]) | high << 4).astype(np.int8) - np.int8(32)
        scales: Floats = half_at(blocks, 0) * factors
        values = _VALUES[fields(blocks[:, 8:].reshape(-1, 8, 16), 4).reshape(-1, 8, 32)]
        return (scales[..., None] * values).reshape(-1, 256)
