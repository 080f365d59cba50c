"""The K formats: 256 weights in groups of 16 or 32, whose scales are small integers too.

A float per block multiplies the group scales (another one the group minimums), so a
group costs 4 to 8 bits instead of a float of its own.
"""

import numpy as np

from ingot.arrays import Bytes, Floats
from ingot.gguf import GgmlType
from ingot.quant.bits import fields, half_at
from ingot.quant.block import BlockFormat


def _six_bit_pairs(packed: Bytes) -> tuple[Bytes, Bytes]:
    """Eight 6-bit scales and minimums of Q4_K and Q5_K: [n, 12] -> two of [n, 8, 1].

    ```
    byte        7 6 5 4 3 2 1 0
    0..3        H H s s s s s s    scale of group g = 0..3; HH: top of group g + 4
    4..7        h h m m m m m m    the same for the minimums
    8..11       m m m m s s s s    the low four bits of groups 4..7
    ```
    """
    low, mid, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([low & 63, high & 15 | low >> 6 << 4], axis=-1)
    minimums = np.concatenate([mid & 63, high >> 4 | mid >> 6 << 4], axis=-1)
    return scales[..., None], minimums[..., None]


class Q2_K(BlockFormat, type=GgmlType.Q2_K):
    """2.625 bits per weight, 16 groups of 16: w = d * scale * q - dmin * min.

    ```
    0..15   scales  a byte per group: scale in the low nibble, min in the high one
    16..79  qs      2-bit fields; 32 bytes hold 128 weights, field f of byte i being
                    weight 32 * f + i
    80..81  d       f16
    82..83  dmin    f16
    ```
    """

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        groups = blocks[:, :16, None]
        scales: Floats = half_at(blocks, 80)[..., None] * (groups & 15)
        minimums: Floats = half_at(blocks, 82)[..., None] * (groups >> 4)
        codes = fields(blocks[:, 16:80].reshape(-1, 2, 32), 2).reshape(-1, 16, 16)
        return (scales * codes - minimums).reshape(-1, 256)


class Q3_K(BlockFormat, type=GgmlType.Q3_K):
    """3.4375 bits per weight, 16 groups of 16: w = d * (scale - 32) * (q - 4).

    ```
    0..31     hmask   bit j of byte i: the third bit of weight 32 * j + i
    32..95    qs      2-bit fields, as in Q2_K
    96..103   scales  the low nibbles of groups 0..7 (low) and 8..15 (high)
    104..107          field f of byte i: the top two bits of group 4 * f + i
    108..109  d       f16
    ```
    """

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        low = fields(blocks[:, 96:104], 4).reshape(-1, 16)
        high = fields(blocks[:, 104:108], 2).reshape(-1, 16)
        factors = (low | high << 4).astype(np.int8) - np.int8(32)
        scales: Floats = half_at(blocks, 108) * factors
        pairs = fields(blocks[:, 32:96].reshape(-1, 2, 32), 2).reshape(-1, 16, 16)
        third = fields(blocks[:, :32], 1).reshape(-1, 16, 16)
        codes = (pairs | third << 2).astype(np.int8) - np.int8(4)
        return (scales[..., None] * codes).reshape(-1, 256)


class Q4_K(BlockFormat, type=GgmlType.Q4_K):
    """4.5 bits per weight, 8 groups of 32: w = d * scale * q - dmin * min.

    ```
    0..1     d       f16
    2..3     dmin    f16
    4..15    scales and minimums, 6 bits each (_six_bit_pairs)
    16..143  qs      nibbles; 32 bytes hold two groups, the first in the low nibbles
    ```
    """

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        scales, minimums = _six_bit_pairs(blocks[:, 4:16])
        codes = fields(blocks[:, 16:].reshape(-1, 4, 32), 4).reshape(-1, 8, 32)
        scaled = half_at(blocks, 0)[..., None] * scales * codes
        return (scaled - half_at(blocks, 2)[..., None] * minimums).reshape(-1, 256)


class Q5_K(BlockFormat, type=GgmlType.Q5_K):
    """5.5 bits per weight, 8 groups of 32: w = d * scale * q - dmin * min.

    ```
    0..1     d       f16
    2..3     dmin    f16
    4..15    scales and minimums, 6 bits each (_six_bit_pairs)
    16..47   qh      bit g of byte i: the fifth bit of weight i of group g
    48..175  qs      nibbles, as in Q4_K
    ```
    """

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        scales, minimums = _six_bit_pairs(blocks[:, 4:16])
        low = fields(blocks[:, 48:].reshape(-1, 4, 32), 4).reshape(-1, 8, 32)
        codes = low | fields(blocks[:, 16:48], 1) << np.uint8(4)
        scaled = half_at(blocks, 0)[..., None] * scales * codes
        return (scaled - half_at(blocks, 2)[..., None] * minimums).reshape(-1, 256)


class Q6_K(BlockFormat, type=GgmlType.Q6_K):
    """6.5625 bits per weight, 16 groups of 16: w = d * scale * (q - 32).

    ```
    0..127    ql      nibbles: 64 bytes hold 128 weights, the first 64 in the low ones
    128..191  qh      2-bit fields, the top of the weights: 32 bytes hold 128, field f of
                      byte i being weight 32 * f + i
    192..207  scales  int8 per group
    208..209  d       f16
    ```
    """

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        low = fields(blocks[:, :128].reshape(-1, 2, 64), 4).reshape(-1, 16, 16)
        high = fields(blocks[:, 128:192].reshape(-1, 2, 32), 2).reshape(-1, 16, 16)
        codes = (low | high << 4).astype(np.int8) - np.int8(32)
        scales = half_at(blocks, 208) * blocks[:, 192:208].view(np.int8)
        return (scales[..., None] * codes).reshape(-1, 256)


class Q8_K(BlockFormat, type=GgmlType.Q8_K):
    """9.125 bits per weight, one group: w = d * q. Made for activations, not for files.

    ```
    0..3      d      f32
    4..259    qs     int8
    260..291  bsums  int16: the sum of each 16 of qs, for formats with a minimum
    ```
    """

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        return blocks[:, :4].view(np.float32) * blocks[:, 4:260].view(np.int8)
