"""Types that are no blocks: floats and integers, one value per "block", little-endian."""

import numpy as np

from ingot.arrays import Bytes, Floats
from ingot.gguf import GgmlType
from ingot.quant.block import BlockFormat


class F32(BlockFormat, type=GgmlType.F32):
    """`SEEEEEEE EMMMMMMM MMMMMMMM MMMMMMMM`: an IEEE single."""

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        return blocks.view(np.float32).copy()

    @classmethod
    def _encode(cls, weights: Floats) -> Bytes:
        return weights.view(np.uint8).copy()


class F16(BlockFormat, type=GgmlType.F16):
    """`SEEEEEMM MMMMMMMM`: an IEEE half."""

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        return blocks.view(np.float16).astype(np.float32)

    @classmethod
    def _encode(cls, weights: Floats) -> Bytes:
        return weights.astype(np.float16).view(np.uint8)


class BF16(BlockFormat, type=GgmlType.BF16):
    """`SEEEEEEE EMMMMMMM`: the upper half of an IEEE single.

    Encoding rounds to the nearest, ties to even; a NaN stays one (its quiet bit is set,
    so that cutting its payload cannot make it an infinity).
    """

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        return (blocks.view(np.uint16).astype(np.uint32) << 16).view(np.float32)

    @classmethod
    def _encode(cls, weights: Floats) -> Bytes:
        single = weights.view(np.uint32)
        odd = single >> 16 & 1
        rounded = (single.astype(np.uint64) + 0x7FFF + odd >> 16).astype(np.uint16)
        quiet = (single >> 16).astype(np.uint16) | np.uint16(0x40)
        return np.where(np.isnan(weights), quiet, rounded).view(np.uint8)


class F64(BlockFormat, type=GgmlType.F64):
    """An IEEE double, rounded to a single."""

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        return blocks.view(np.float64).astype(np.float32)


class I8(BlockFormat, type=GgmlType.I8):
    """A signed byte."""

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        return blocks.view(np.int8).astype(np.float32)


class I16(BlockFormat, type=GgmlType.I16):
    """A signed 16-bit integer."""

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        return blocks.view(np.int16).astype(np.float32)


class I32(BlockFormat, type=GgmlType.I32):
    """A signed 32-bit integer, rounded to a single."""

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        return blocks.view(np.int32).astype(np.float32)


class I64(BlockFormat, type=GgmlType.I64):
    """A signed 64-bit integer, rounded to a single."""

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        return blocks.view(np.int64).astype(np.float32)
