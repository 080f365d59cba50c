"""FP4 formats: nibbles that are 4-bit floats (E2M1), with 8-bit floats for scales.

An E2M1 value is 0, 0.5, 1, 1.5, 2, 3, 4 or 6 and a sign. The table holds twice that, in
whole numbers; the scales below hold half of what their bits say.
"""

import numpy as np

from ingot.arrays import Bytes, Floats
from ingot.gguf import GgmlType
from ingot.quant.bits import fields, to_integers
from ingot.quant.block import BlockFormat

_VALUES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=np.int8)


def _half_e8m0(exponents: Bytes) -> Floats:
    """Half of 2 ** (e - 127); the two smallest are subnormal singles."""
    normal = (exponents.astype(np.uint32) - 1) << 23
    subnormal = np.uint32(1 << 21) << exponents.astype(np.uint32)
    return np.where(exponents < 2, subnormal, normal).view(np.float32)


def _half_e4m3(scales: Bytes) -> Floats:
    """Half of an unsigned E4M3 float (its top bit is not looked at); its NaN, 0x7f, is 0."""
    exponent = (scales >> 3 & 15).astype(np.int32)
    mantissa = (scales & 7).astype(np.float32)
    normal = np.ldexp(mantissa + 8, exponent - 11)  # (1 + mantissa / 8) * 2 ** (exponent - 8)
    subnormal = mantissa * np.float32(2**-10)
    halved = np.where(exponent == 0, subnormal, normal)
    return np.where(scales == 0x7F, np.float32(0), halved)


class MXFP4(BlockFormat, type=GgmlType.MXFP4):
    """4.25 bits per weight: 32 weights, w = 2 ** (e - 128) * value[q].

    ```
    0      e   the exponent of the scale (E8M0)
    1..16  qs  nibbles: byte i holds weight i (low) and weight i + 16 (high)
    ```

    Encoding puts the largest magnitude between 4 and 8 scale steps (6 is the largest
    value) and takes the nearest value for each weight, the first of two equally near.
    """

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        return _half_e8m0(blocks[:, :1]) * _VALUES[fields(blocks[:, 1:], 4).reshape(-1, 32)]

    @classmethod
    def _encode(cls, weights: Floats) -> Bytes:
        largest = np.abs(weights).max(axis=-1, keepdims=True)
        exponents = np.where(largest > 0, np.floor(np.log2(largest)) + np.float32(125), 0)
        # Below 2 ** -125 the exponent wraps around to a huge scale, under which all codes are 0.
        exponents = to_integers(exponents).astype(np.uint8)
        values = _half_e8m0(exponents)[..., None] * _VALUES  # [n, 1, 16]
        codes = np.abs(values - weights[..., None]).argmin(axis=-1).astype(np.uint8)
        return np.concatenate([exponents, codes[:, :16] | codes[:, 16:] << 4], axis=-1)


class NVFP4(BlockFormat, type=GgmlType.NVFP4):
    """4.5 bits per weight: 64 weights, 4 groups of 16, w = half a scale * value[q].

    ```
    0..3   d   a byte per group: its scale, an unsigned 8-bit float (E4M3)
    4..35  qs  nibbles, 8 bytes per group: byte i holds weight i (low) and i + 8 (high)
    ```
    """

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        values = _VALUES[fields(blocks[:, 4:].reshape(-1, 4, 8), 4).reshape(-1, 4, 16)]
        return (_half_e4m3(blocks[:, :4])[..., None] * values).reshape(-1, 64)
