"""The first block formats: 32 weights that share one scale (and, in the _1s, one minimum).

All hold nibbles the same way: of 16 bytes `qs`, byte i keeps weight i in its low
nibble and weight i + 16 in its high one. The encoders take the extreme weight for the
end of the range and round the others; equal input gives equal bytes everywhere.
"""

import numpy as np

from ingot.arrays import Bytes, Floats
from ingot.gguf import GgmlType
from ingot.quant.bits import (
    bits,
    fields,
    half_at,
    half_bytes,
    inverse,
    round_half_away,
    to_integers,
)
from ingot.quant.block import BlockFormat


def _nibbles(blocks: Bytes, offset: int) -> Bytes:
    return fields(blocks[:, offset : offset + 16], 4).reshape(-1, 32)


def _fifth_bits(blocks: Bytes, offset: int) -> Bytes:
    return bits(blocks[:, offset : offset + 4]).reshape(-1, 32) << np.uint8(4)


def _pack_nibbles(codes: Bytes) -> Bytes:
    return codes[:, :16] & np.uint8(15) | codes[:, 16:] << np.uint8(4)


def _pack_fifth_bits(codes: Bytes) -> Bytes:
    return np.packbits(codes >> 4, axis=-1, bitorder="little")


def _centred_codes(weights: Floats, middle: int) -> tuple[Floats, Bytes]:
    """Scale and codes 0 .. 2 * middle - 1; the weight furthest from 0 gets code 0."""
    furthest = np.abs(weights).argmax(axis=-1, keepdims=True)
    scale = np.take_along_axis(weights, furthest, axis=-1) / np.float32(-middle)
    codes = to_integers(weights * inverse(scale) + np.float32(middle + 0.5))
    return scale, codes.clip(0, 2 * middle - 1).astype(np.uint8)


def _ranged_codes(weights: Floats, top: int) -> tuple[Floats, Floats, Bytes]:
    """Scale, minimum and codes 0 .. top that span the block's range."""
    minimum = weights.min(axis=-1, keepdims=True)
    scale = (weights.max(axis=-1, keepdims=True) - minimum) / np.float32(top)
    codes = to_integers((weights - minimum) * inverse(scale) + np.float32(0.5))
    return scale, minimum, codes.clip(0, top).astype(np.uint8)


class Q4_0(BlockFormat, type=GgmlType.Q4_0):
    """4.5 bits per weight: w = d * (q - 8).

    ```
    0..1   d   f16
    2..17  qs  nibbles
    ```
    """

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        return half_at(blocks, 0) * (_nibbles(blocks, 2).astype(np.int8) - np.int8(8))

    @classmethod
    def _encode(cls, weights: Floats) -> Bytes:
        scale, codes = _centred_codes(weights, middle=8)
        return np.concatenate([half_bytes(scale), _pack_nibbles(codes)], axis=-1)


class Q4_1(BlockFormat, type=GgmlType.Q4_1):
    """5 bits per weight: w = d * q + m.

    ```
    0..1   d   f16
    2..3   m   f16
    4..19  qs  nibbles
    ```
    """

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        return half_at(blocks, 0) * _nibbles(blocks, 4) + half_at(blocks, 2)

    @classmethod
    def _encode(cls, weights: Floats) -> Bytes:
        scale, minimum, codes = _ranged_codes(weights, top=15)
        parts = [half_bytes(scale), half_bytes(minimum), _pack_nibbles(codes)]
        return np.concatenate(parts, axis=-1)


class Q5_0(BlockFormat, type=GgmlType.Q5_0):
    """5.5 bits per weight: w = d * (q - 16).

    ```
    0..1   d   f16
    2..5   qh  bit i: the fifth bit of weight i
    6..21  qs  nibbles, the low four bits
    ```
    """

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        codes = _nibbles(blocks, 6) | _fifth_bits(blocks, 2)
        return half_at(blocks, 0) * (codes.astype(np.int8) - np.int8(16))

    @classmethod
    def _encode(cls, weights: Floats) -> Bytes:
        scale, codes = _centred_codes(weights, middle=16)
        parts = [half_bytes(scale), _pack_fifth_bits(codes), _pack_nibbles(codes)]
        return np.concatenate(parts, axis=-1)


class Q5_1(BlockFormat, type=GgmlType.Q5_1):
    """6 bits per weight: w = d * q + m.

    ```
    0..1   d   f16
    2..3   m   f16
    4..7   qh  bit i: the fifth bit of weight i
    8..23  qs  nibbles, the low four bits
    ```
    """

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        codes = _nibbles(blocks, 8) | _fifth_bits(blocks, 4)
        return half_at(blocks, 0) * codes + half_at(blocks, 2)

    @classmethod
    def _encode(cls, weights: Floats) -> Bytes:
        scale, minimum, codes = _ranged_codes(weights, top=31)
        halves = [half_bytes(scale), half_bytes(minimum)]
        return np.concatenate([*halves, _pack_fifth_bits(codes), _pack_nibbles(codes)], axis=-1)


class Q8_0(BlockFormat, type=GgmlType.Q8_0):
    """8.5 bits per weight: w = d * q.

    ```
    0..1   d   f16
    2..33  qs  int8
    ```
    """

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        return half_at(blocks, 0) * blocks[:, 2:].view(np.int8)

    @classmethod
    def _encode(cls, weights: Floats) -> Bytes:
        scale = np.abs(weights).max(axis=-1, keepdims=True) / np.float32(127)
        codes = to_integers(round_half_away(weights * inverse(scale))).astype(np.int8)
        return np.concatenate([half_bytes(scale), codes.view(np.uint8)], axis=-1)
