"""The IQ formats below 4 bits: 256 weights whose 8 (or 4) neighbours are one point of a grid.

A block names points by index; IQ2 and IQ3 store magnitudes in the grid and signs apart,
IQ1 stores signed points and a shift of all of a group by an eighth, up or down. The
grids are in native/formats/grids.cpp, the one place that lists them.
"""

import numpy as np
from numpy.typing import NDArray

from ingot import _native
from ingot.arrays import Bytes, Floats
from ingot.gguf import GgmlType
from ingot.quant.bits import bits, half_at, nibble_pairs
from ingot.quant.block import BlockFormat

_EIGHTH = np.float32(0.125)


def _even_signs(stored: NDArray[np.integer]) -> Bytes:
    """Sign bits of 8 weights from the stored 7: the eighth makes their number even."""
    seven = stored.astype(np.uint8)
    odd: Bytes = np.bitwise_xor.reduce(bits(seven), axis=-1)
    return seven | odd << np.uint8(7)


def _sign_index(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Four 7-bit sign indices of a word: [n, 8] -> [n, 8, 4]."""
    return words[..., None] >> np.arange(0, 28, 7, dtype=np.uint32) & np.uint32(127)


def _signed(scales: Floats, points: NDArray[np.int8], sign_bits: Bytes) -> Floats:
    """Weights from group scales [n, groups], points in weight order and a bit per sign."""
    magnitudes = points.reshape(len(scales), 32, 8)
    signs = 1 - 2 * bits(sign_bits.reshape(len(scales), 32)).astype(np.int8)
    values = (magnitudes * signs).reshape(*scales.shape, 256 // scales.shape[1])
    return (scales[..., None] * values).reshape(-1, 256)


def _shifted(scales: Floats, points: NDArray[np.int8], shift_down: NDArray[np.bool_]) -> Floats:
    """IQ1 weights: points in eighths, each moved by one; a flag per `shift_down` group."""
    shifts = np.where(shift_down, np.int8(-1), np.int8(1))
    moved = points.reshape(*shifts.shape, 256 // shifts.shape[1]) + shifts[..., None]
    eighths = moved.reshape(*scales.shape, 256 // scales.shape[1])
    return ((scales * _EIGHTH)[..., None] * eighths).reshape(-1, 256)


class IQ2_XXS(BlockFormat, type=GgmlType.IQ2_XXS):
    """2.0625 bits per weight, 8 groups of 32: w = d * (scale + 0.5) / 4 * point * sign.

    ```
    0..1   d   f16
    2..65  qs  8 bytes per group: 4 bytes, each the index of a point, then a 32-bit word
               with four sign indices (7 bits each) and the scale (top 4 bits)
    ```
    """

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        groups = blocks[:, 2:].reshape(-1, 8, 8)
        words = groups[..., 4:].view(np.uint32)[..., 0]
        scales = half_at(blocks, 0) * ((words >> 28).astype(np.float32) + np.float32(0.5))
        points = _native.grid("IQ2_XXS")[groups[..., :4]]
        return _signed(scales * np.float32(0.25), points, _even_signs(_sign_index(words)))


class IQ2_XS(BlockFormat, type=GgmlType.IQ2_XS):
    """2.3125 bits per weight, 16 groups of 16: w = d * (scale + 0.5) / 4 * point * sign.

    ```
    0..1    d       f16
    2..65   qs      16 bits per 8 weights: point (9 bits) and sign index (top 7 bits)
    66..73  scales  a nibble per group, two neighbours in a byte
    ```
    """

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        codes = blocks[:, 2:66].view(np.uint16)
        scales = half_at(blocks, 0) * (nibble_pairs(blocks[:, 66:]) + np.float32(0.5))
        points = _native.grid("IQ2_XS")[codes & 511]
        return _signed(scales * np.float32(0.25), points, _even_signs(codes >> 9))


class IQ2_S(BlockFormat, type=GgmlType.IQ2_S):
    """2.5625 bits per weight, 16 groups of 16: w = d * (scale + 0.5) / 4 * point * sign.

    ```
    0..1    d       f16
    2..33   qs      the low 8 bits of each point's index
    34..65  signs   a bit per weight
    66..73  qh      the top 2 bits of four indices, the first lowest
    74..81  scales  a nibble per group, two neighbours in a byte
    ```
    """

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        high = blocks[:, 66:74, None] >> np.arange(0, 8, 2, dtype=np.uint8) & 3
        index = blocks[:, 2:34] | high.reshape(-1, 32).astype(np.uint16) << 8
        scales = half_at(blocks, 0) * (nibble_pairs(blocks[:, 74:]) + np.float32(0.5))
        points = _native.grid("IQ2_S")[index]
        return _signed(scales * np.float32(0.25), points, blocks[:, 34:66])


class IQ3_XXS(BlockFormat, type=GgmlType.IQ3_XXS):
    """3.0625 bits per weight, 8 groups of 32: w = d * (scale + 0.5) / 2 * point * sign.

    ```
    0..1    d   f16
    2..65   qs  the index of a point of 4 weights
    66..97      a 32-bit word per group, as in IQ2_XXS: sign indices and scale
    ```
    """

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        words = blocks[:, 66:].view(np.uint32)
        scales = half_at(blocks, 0) * ((words >> 28).astype(np.float32) + np.float32(0.5))
        points = _native.grid("IQ3_XXS")[blocks[:, 2:66]]
        return _signed(scales * np.float32(0.5), points, _even_signs(_sign_index(words)))


class IQ3_S(BlockFormat, type=GgmlType.IQ3_S):
    """3.4375 bits per weight, 8 groups of 32: w = d * (2 * scale + 1) * point * sign.

    ```
    0..1      d       f16
    2..65     qs      the low 8 bits of the index of a point of 4 weights
    66..73    qh      bit j of byte i: the top bit of index 8 * i + j
    74..105   signs   a bit per weight
    106..109  scales  a nibble per group, two neighbours in a byte
    ```
    """

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        high = bits(blocks[:, 66:74]).reshape(-1, 64).astype(np.uint16)
        scales = half_at(blocks, 0) * (2 * nibble_pairs(blocks[:, 106:]) + 1)
        points = _native.grid("IQ3_S")[blocks[:, 2:66] | high << 8]
        return _signed(scales, points, blocks[:, 74:106])


class IQ1_S(BlockFormat, type=GgmlType.IQ1_S):
    """1.5625 bits per weight, 8 groups of 32: w = d * (2 * scale + 1) * (point + shift).

    ```
    0..1    d   f16
    2..33   qs  the low 8 bits of each point's index
    34..49  qh  16 bits per group: four times the top 3 bits of an index, the scale
                (3 bits), and whether the shift of 1/8 is down (top bit)
    ```
    """

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        groups = blocks[:, 34:].view(np.uint16)
        high = groups[..., None] >> np.arange(0, 12, 3, dtype=np.uint16) & 7
        scales = half_at(blocks, 0) * (2 * (groups >> 12 & 7) + 1)
        points = _native.grid("IQ1_S")[blocks[:, 2:34] | high.reshape(-1, 32) << 8]
        return _shifted(scales, points, groups >> 15 == 1)


class IQ1_M(BlockFormat, type=GgmlType.IQ1_M):
    """1.75 bits per weight, 16 groups of 16: w = d * (2 * scale + 1) * (point + shift).

    ```
    0..31   qs      the low 8 bits of each point's index
    32..47  qh      a nibble per point, two neighbours in a byte: the top 3 bits of its
                    index, and whether its shift of 1/8 is down (top bit)
    48..55  scales  four 16-bit words of four 3-bit scales; their top nibbles, the first
                    lowest, are d, an f16
    ```
    """

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        words = blocks[:, 48:].view(np.uint16)
        parts = words >> 12 << np.arange(0, 16, 4, dtype=np.uint16)
        d = np.bitwise_or.reduce(parts, axis=-1, keepdims=True).view(np.float16)
        factors = words[..., None] >> np.arange(0, 12, 3, dtype=np.uint16) & 7
        scales = d.astype(np.float32) * (2 * factors.reshape(-1, 16) + 1)
        high = nibble_pairs(blocks[:, 32:48])
        points = _native.grid("IQ1_S")[blocks[:, :32] | (high & 7).astype(np.uint16) << 8]
        return _shifted(scales, points, high >> 3 == 1)
