"""The IQ formats below 4 bits: 256 weights whose 8 (or 4) neighbours are one point of a grid.

A block names points by index; IQ2 and IQ3 store magnitudes in the grid and signs apart,
IQ1 stores signed points and a shift of all of a group by an eighth, up or down. The
grids are in native/formats/grids.cpp, the one place that lists them. Magnitudes are few, so
weights are codes of 4 bits that name one of 16 levels; -w has the code of w with all bits changed.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from ingot import _native
from ingot.arrays import Bytes, Integers
from ingot.quant.bits import (
    bits,
    half_at,
    library,
    look_up,
    nibble_pairs,
    pairs_of_bits,
    whole_numbers,
)
from ingot.quant.block import BlockFormat, Coding, Parts


def _both_signs(*magnitudes: int) -> tuple[int, ...]:
    """Sixteen levels: code 8 + i is magnitude i, and 7 - i is minus that."""
    positive = (*magnitudes, *(0,) * (8 - len(magnitudes)))
    return (*(-level for level in reversed(positive)), *positive)


_IQ2_LEVELS = _both_signs(8, 25, 43)
_IQ3_XXS_LEVELS = _both_signs(4, 12, 20, 28, 36, 44, 52, 62)
_ODD_LEVELS = _both_signs(1, 3, 5, 7, 9, 11, 13, 15)  # of IQ3_S, and of IQ1 in eighths
_NO_SHIFT = 8  # the code that IQ1's grid has for 0: half of its points plus this


@cache
def _codes(grid: str, levels: tuple[int, ...]) -> Bytes:
    """The points of a grid as codes: [entries, 8 or 4]."""
    positive = np.array(levels[8:])
    magnitudes = _native.grid(grid)[..., None]
    codes: Bytes = (8 + (magnitudes == positive).argmax(-1)).astype(np.uint8)
    return codes


@cache
def _shifted_codes() -> Bytes:
    """IQ1's points in eighths, shifted up by one, as codes of odd levels: [entries, 8]."""
    return (_native.grid("IQ1_S") // 2 + _NO_SHIFT).astype(np.uint8)


def _even_signs(stored: Integers) -> Bytes:
    """Sign bits of 8 weights from the stored 7: the eighth makes their number even."""
    xp = library(stored)
    seven = xp.asarray(stored, dtype=xp.uint8)
    folded = seven ^ seven >> 4
    folded = folded ^ folded >> 2
    signs: Bytes = seven | (folded ^ folded >> 1) << 7
    return signs


def _signed(points: Bytes, sign_bits: Bytes) -> Integers:
    """Codes of weights from those of magnitudes and a bit per sign: [n, 32, 8] in the end."""
    return points.reshape(-1, 32, 8) ^ bits(sign_bits.reshape(-1, 32)) * 15


def _sevens(words: NDArray[np.int64]) -> Bytes:
    """Four 7-bit sign indices of a word: [n, 8] -> [n, 8, 4]."""
    split: Bytes = library(words).stack([words >> at & 127 for at in range(0, 28, 7)], -1)
    return split


def _index(low: Bytes, high: Integers) -> NDArray[np.int64]:
    """An index from its low 8 bits and those above."""
    xp = library(high)
    index: NDArray[np.int64] = xp.asarray(high, dtype=xp.int64) << 8 | low
    return index


def _scale_bytes(fields: NDArray[np.int64]) -> Bytes:
    """Small numbers as bytes, twice each and 1: the odd factors of groups."""
    xp = library(fields)
    factors: Bytes = xp.asarray(2 * fields + 1, dtype=xp.uint8)
    return factors


class IQ2_XXS(BlockFormat):
    """2.0625 bits per weight, 8 groups of 32: w = d * (2 * scale + 1) / 8 * point * sign.

    ```
    0..1   d   f16
    2..65  qs  8 bytes per group: 4 bytes, each the index of a point, then a 32-bit word
               with four sign indices (7 bits each) and the scale (top 4 bits)
    ```
    """

    coding = Coding(bits=4, group=32, levels=_IQ2_LEVELS)

    @classmethod
    def split(cls, blocks: Bytes) -> Parts:
        groups = blocks[:, 2:].reshape(-1, 8, 8)
        words = whole_numbers(groups[..., 4:], 4)[..., 0]
        points = look_up(_codes("IQ2_XXS", _IQ2_LEVELS), groups[..., :4])
        scales = half_at(blocks, 0) * _scale_bytes(words >> 28) * 0.125
        return Parts(_signed(points, _even_signs(_sevens(words))), scales)


class IQ2_XS(BlockFormat):
    """2.3125 bits per weight, 16 groups of 16: w = d * (2 * scale + 1) / 8 * point * sign.

    ```
    0..1    d       f16
    2..65   qs      16 bits per 8 weights: point (9 bits) and sign index (top 7 bits)
    66..73  scales  a nibble per group, two neighbours in a byte
    ```
    """

    coding = Coding(bits=4, group=16, levels=_IQ2_LEVELS)

    @classmethod
    def split(cls, blocks: Bytes) -> Parts:
        stored = whole_numbers(blocks[:, 2:66], 2)
        points = look_up(_codes("IQ2_XS", _IQ2_LEVELS), stored & 511)
        scales = half_at(blocks, 0) * (2 * nibble_pairs(blocks[:, 66:]) + 1) * 0.125
        return Parts(_signed(points, _even_signs(stored >> 9)), scales)


class IQ2_S(BlockFormat):
    """2.5625 bits per weight, 16 groups of 16: w = d * (2 * scale + 1) / 8 * point * sign.

    ```
    0..1    d       f16
    2..33   qs      the low 8 bits of each point's index
    34..65  signs   a bit per weight
    66..73  qh      the top 2 bits of four indices, the first lowest
    74..81  scales  a nibble per group, two neighbours in a byte
    ```
    """

    coding = Coding(bits=4, group=16, levels=_IQ2_LEVELS)

    @classmethod
    def split(cls, blocks: Bytes) -> Parts:
        high = pairs_of_bits(blocks[:, 66:74]).reshape(-1, 32)
        points = look_up(_codes("IQ2_S", _IQ2_LEVELS), _index(blocks[:, 2:34], high))
        scales = half_at(blocks, 0) * (2 * nibble_pairs(blocks[:, 74:]) + 1) * 0.125
        return Parts(_signed(points, blocks[:, 34:66]), scales)


class IQ3_XXS(BlockFormat):
    """3.0625 bits per weight, 8 groups of 32: w = d * (2 * scale + 1) / 4 * point * sign.

    ```
    0..1    d   f16
    2..65   qs  the index of a point of 4 weights
    66..97      a 32-bit word per group, as in IQ2_XXS: sign indices and scale
    ```
    """

    coding = Coding(bits=4, group=32, levels=_IQ3_XXS_LEVELS)

    @classmethod
    def split(cls, blocks: Bytes) -> Parts:
        words = whole_numbers(blocks[:, 66:], 4)
        points = look_up(_codes("IQ3_XXS", _IQ3_XXS_LEVELS), blocks[:, 2:66])
        scales = half_at(blocks, 0) * _scale_bytes(words >> 28) * 0.25
        return Parts(_signed(points, _even_signs(_sevens(words))), scales)


class IQ3_S(BlockFormat):
    """3.4375 bits per weight, 8 groups of 32: w = d * (2 * scale + 1) * point * sign.

    ```
    0..1      d       f16
    2..65     qs      the low 8 bits of the index of a point of 4 weights
    66..73    qh      bit j of byte i: the top bit of index 8 * i + j
    74..105   signs   a bit per weight
    106..109  scales  a nibble per group, two neighbours in a byte
    ```
    """

    coding = Coding(bits=4, group=32, levels=_ODD_LEVELS)

    @classmethod
    def split(cls, blocks: Bytes) -> Parts:
        high = bits(blocks[:, 66:74]).reshape(-1, 64)
        points = look_up(_codes("IQ3_S", _ODD_LEVELS), _index(blocks[:, 2:66], high))
        scales = half_at(blocks, 0) * (2 * nibble_pairs(blocks[:, 106:]) + 1)
        return Parts(_signed(points, blocks[:, 74:106]), scales)


class IQ1_S(BlockFormat):
    """1.5625 bits per weight, 8 groups of 32: w = d * (2 * scale + 1) * (point + shift).

    ```
    0..1    d   f16
    2..33   qs  the low 8 bits of each point's index
    34..49  qh  16 bits per group: four times the top 3 bits of an index, the scale
                (3 bits), and whether the shift of 1/8 is down (top bit)
    ```
    """

    coding = Coding(bits=4, group=32, levels=_ODD_LEVELS)

    @classmethod
    def split(cls, blocks: Bytes) -> Parts:
        groups = whole_numbers(blocks[:, 34:], 2)
        high = library(groups).stack([groups >> at & 7 for at in range(0, 12, 3)], -1)
        points = look_up(_shifted_codes(), _index(blocks[:, 2:34], high.reshape(-1, 32)))
        down = library(groups).asarray(groups >> 15, dtype=points.dtype)
        scales = half_at(blocks, 0) * _scale_bytes(groups >> 12 & 7) * 0.125
        return Parts(points.reshape(-1, 8, 32) - down[..., None], scales)


class IQ1_M(BlockFormat):
    """1.75 bits per weight, 16 groups of 16: w = d * (2 * scale + 1) * (point + shift).

    ```
    0..31   qs      the low 8 bits of each point's index
    32..47  qh      a nibble per point, two neighbours in a byte: the top 3 bits of its
                    index, and whether its shift of 1/8 is down (top bit)
    48..55  scales  four 16-bit words of four 3-bit scales; their top nibbles, the first
                    lowest, are d, an f16
    ```
    """

    coding = Coding(bits=4, group=16, levels=_ODD_LEVELS)

    @classmethod
    def split(cls, blocks: Bytes) -> Parts:
        words = whole_numbers(blocks[:, 48:], 2)
        fields = library(words).stack([words >> at & 7 for at in range(0, 12, 3)], -1)
        tops = blocks[:, 49:56:2] >> 4
        d = half_at(tops[:, ::2] | tops[:, 1::2] << 4, 0)
        high = nibble_pairs(blocks[:, 32:48])
        points = look_up(_shifted_codes(), _index(blocks[:, :32], high & 7))
        scales = d * _scale_bytes(fields.reshape(-1, 16)) * 0.125
        return Parts(points - (high >> 3)[..., None], scales)
