"""FP4 formats: nibbles that are 4-bit floats (E2M1), with 8-bit floats for scales.

An E2M1 value is 0, 0.5, 1, 1.5, 2, 3, 4 or 6 and a sign. The levels are twice that, in
whole numbers; the scales below are half of what their bits say.
"""

import numpy as np

from ingot.arrays import Bytes, Floats
from ingot.quant.bits import fields, library, to_integers
from ingot.quant.block import BlockFormat, Coding, Parts

LEVELS = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
_LEVELS = np.array(LEVELS, np.int8)


def _half_e8m0(exponents: Bytes) -> Floats:
    """Half of 2 ** (e - 127); the two smallest are subnormal singles."""
    xp = library(exponents)
    e = xp.asarray(exponents, dtype=xp.int32)
    scale: Floats = xp.where(e < 2, (e + 1) << 21, (e - 1) << 23).view(xp.float32)
    return scale


def _half_e4m3(scales: Bytes) -> Floats:
    """Half of an unsigned E4M3 float (its top bit is not looked at); its NaN, 0x7f, is 0.

    Its exponent and mantissa are those of a half float that is 2 ** -8 of it.
    """
    xp = library(scales)
    halves = (xp.asarray(scales & 127, dtype=xp.int16) << 7).view(xp.float16)
    halved: Floats = xp.asarray(halves, dtype=xp.float32) * 128.0 * (scales != 0x7F)
    return halved


class MXFP4(BlockFormat):
    """4.25 bits per weight: 32 weights, w = 2 ** (e - 128) * level[q].

    ```
    0      e   the exponent of the scale (E8M0)
    1..16  qs  nibbles: byte i holds weight i (low) and weight i + 16 (high)
    ```

    Encoding puts the largest magnitude between 4 and 8 scale steps (6 is the largest
    value) and takes the nearest value for each weight, the first of two equally near.
    """

    coding = Coding(bits=4, group=32, levels=LEVELS)

    @classmethod
    def split(cls, blocks: Bytes) -> Parts:
        return Parts(fields(blocks[:, 1:], 4), _half_e8m0(blocks[:, :1]))

    @classmethod
    def _encode(cls, weights: Floats) -> Bytes:
        largest = np.abs(weights).max(axis=-1, keepdims=True)
        exponents = np.where(largest > 0, np.floor(np.log2(largest)) + np.float32(125), 0)
        # Below 2 ** -125 the exponent wraps around to a huge scale, under which all codes are 0.
        exponents = to_integers(exponents).astype(np.uint8)
        values = _half_e8m0(exponents)[..., None] * _LEVELS  # [n, 1, 16]
        codes = np.abs(values - weights[..., None]).argmin(axis=-1).astype(np.uint8)
        return np.concatenate([exponents, codes[:, :16] | codes[:, 16:] << 4], axis=-1)


class NVFP4(BlockFormat):
    """4.5 bits per weight: 64 weights, 4 groups of 16, w = half a scale * level[q].

    ```
    0..3   d   a byte per group: its scale, an unsigned 8-bit float (E4M3)
    4..35  qs  nibbles, 8 bytes per group: byte i holds weight i (low) and i + 8 (high)
    ```
    """

    coding = Coding(bits=4, group=16, levels=LEVELS)

    @classmethod
    def split(cls, blocks: Bytes) -> Parts:
        return Parts(fields(blocks[:, 4:].reshape(-1, 4, 8), 4), _half_e4m3(blocks[:, :4]))
