"""IQ4: nibbles that name one of 16 unevenly spaced levels, dense around zero."""

from ingot.arrays import Bytes
from ingot.quant.bits import fields, half_at, nibble_pairs, signed
from ingot.quant.block import BlockFormat, Coding, Parts

LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


class IQ4_NL(BlockFormat):
    """4.5 bits per weight: 32 weights, w = d * level[q].

    ```
    0..1   d   f16
    2..17  qs  nibbles: byte i holds weight i (low) and weight i + 16 (high)
    ```
    """

    coding = Coding(bits=4, group=32, levels=LEVELS)

    @classmethod
    def split(cls, blocks: Bytes) -> Parts:
        return Parts(fields(blocks[:, 2:], 4), half_at(blocks, 0))


class IQ4_XS(BlockFormat):
    """4.25 bits per weight: 256 weights, 8 groups of 32, w = d * (scale - 32) * level[q].

    ```
    0..1    d         f16
    2..3    scales_h  bits 2 * g and 2 * g + 1: the top of the scale of group g
    4..7    scales_l  a nibble per group, two neighbours in a byte: their low four bits
    8..135  qs        nibbles; 16 bytes per group, as in IQ4_NL
    ```
    """

    coding = Coding(bits=4, group=32, levels=LEVELS)

    @classmethod
    def split(cls, blocks: Bytes) -> Parts:
        high = fields(blocks[:, 2:4, None], 2).reshape(-1, 8)
        factors = signed((nibble_pairs(blocks[:, 4:8]) | high << 4) - 32)
        codes = fields(blocks[:, 8:].reshape(-1, 8, 16), 4)
        return Parts(codes, half_at(blocks, 0) * factors)
