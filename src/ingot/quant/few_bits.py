"""Formats of one and two bits: codes in the order of the weights, and one half-precision scale."""

import numpy as np

from ingot.arrays import Bytes, Floats
from ingot.quant.bits import bits, half_at, half_bytes, pairs_of_bits
from ingot.quant.block import BlockFormat, Coding, Parts

_LARGEST_HALF = np.float32(65504)


class Q1_0(BlockFormat):
    """1.125 bits per weight: 128 weights, w = d if its bit is set, else -d.

    ```
    0..1   d   f16
    2..17  qs  bit i: whether weight i is positive
    ```

    Encoding takes the mean magnitude for d, added up in the order of the weights; NaN if one of
    them is not finite.
    """

    coding = Coding(bits=2, group=128, zero=1)

    @classmethod
    def split(cls, blocks: Bytes) -> Parts:
        return Parts(bits(blocks[:, 2:]) << 1, half_at(blocks, 0))  # 0 and 2, for -1 and 1

    @classmethod
    def _encode(cls, weights: Floats) -> Bytes:
        mean = np.minimum(np.abs(weights).cumsum(axis=-1)[:, -1:] / np.float32(128), _LARGEST_HALF)
        mean[~np.isfinite(weights).all(axis=-1)] = np.nan
        signs = np.packbits(weights >= 0, axis=-1, bitorder="little")
        return np.concatenate([half_bytes(mean), signs], axis=-1)


class Q2_0(BlockFormat):
    """2.25 bits per weight: 64 weights, w = d * (q - 1).

    ```
    0..1   d   f16
    2..17  qs  2-bit fields: byte i holds weights 4 * i to 4 * i + 3, the first one lowest
    ```
    """

    coding = Coding(bits=2, group=64, zero=1)

    @classmethod
    def split(cls, blocks: Bytes) -> Parts:
        return Parts(pairs_of_bits(blocks[:, 2:]), half_at(blocks, 0))
