"""What a block format is: a fixed number of bytes that holds a fixed number of weights.

In: the bytes of whole blocks, or float32 weights. Out: the other of the two, in NumPy. This is
the plain statement of every format; the native kernels (which `ingot.quant.decode` and `encode`
call) are tested against it, and the GPU backend packs matrices by it. Knows nothing of files,
shapes or threads.
"""

from abc import ABC
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ingot.arrays import Bytes, Floats, Integers
from ingot.errors import QuantError
from ingot.gguf import GgmlType


@dataclass(frozen=True, slots=True)
class Coding:
    """How a format codes its weights.

    w = scale * (code - zero) + minimum, or scale * levels[code]; each group has its own scale
    (and minimum).
    """

    bits: int  # of a code
    group: int  # weights
    zero: int = 0
    has_minimum: bool = False
    levels: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """Blocks taken apart into codes and the scales of their groups."""

    codes: Integers  # uint8 [n, ...]: the weights of a block, in order
    scales: Floats  # [n, groups]
    minimums: Floats | None = None  # [n, groups]


class BlockFormat(ABC):
    """One block format: a subclass with the name of its tensor type.

    A subclass draws its layout in its docstring and says what the bytes mean in one of two ways:

    - `coding` and `split`. NumPy's decoding follows from them, and the GPU backend keeps the
      weights in their few bits. It calls `split` with torch tensors, so `split` uses operators
      and the functions of `ingot.quant.bits`, which work on arrays of both libraries.
    - `_decode`, for formats that are not codes under scales. A GPU keeps them as half floats.

    A simple encoding is stated in `_encode`, for the tests of the native one.
    """

    type: ClassVar[GgmlType]
    coding: ClassVar[Coding | None] = None

    def __init_subclass__(cls) -> None:
        cls.type = GgmlType[cls.__name__]

    @classmethod
    def split(cls, blocks: Bytes) -> Parts:
        """Take blocks [n, bytes of a block] apart; only for a format with a `coding`."""
        raise NotImplementedError(cls.type.name)

    @classmethod
    def decode_blocks(cls, blocks: Bytes) -> Floats:
        """Turn uint8 [n, bytes of a block] into float32 [n, weights of a block]."""
        cls._check(blocks, np.dtype(np.uint8), cls.type.block_bytes)
        with np.errstate(all="ignore"):  # any bytes are a block, infinite scales included
            return cls._decode(np.ascontiguousarray(blocks))

    @classmethod
    def encode_blocks(cls, weights: Floats) -> Bytes:
        """Turn float32 [n, weights of a block] into uint8 [n, bytes of a block]."""
        cls._check(weights, np.dtype(np.float32), cls.type.block_size)
        with np.errstate(all="ignore"):  # huge and tiny weights leave the range of a scale
            return cls._encode(np.ascontiguousarray(weights))

    @classmethod
    def _decode(cls, blocks: Bytes) -> Floats:
        coding, parts = cls.coding, cls.split(blocks)
        if coding is None:
            raise NotImplementedError(cls.type.name)
        if coding.levels is not None:
            values = np.array(coding.levels, np.float32)[parts.codes]
        else:
            values = parts.codes.astype(np.float32) - np.float32(coding.zero)
        groups = cls.type.block_size // coding.group
        weights = parts.scales.reshape(-1, groups, 1) * values.reshape(-1, groups, coding.group)
        if parts.minimums is not None:
            weights = weights + parts.minimums.reshape(-1, groups, 1)
        return weights.reshape(-1, cls.type.block_size)

    @classmethod
    def _encode(cls, weights: Floats) -> Bytes:  # noqa: ARG003
        raise QuantError(f"{cls.type.name} has no encoder in NumPy")

    @classmethod
    def _check(cls, blocks: NDArray[Any], dtype: np.dtype[Any], width: int) -> None:
        if blocks.dtype != dtype or blocks.ndim != 2 or blocks.shape[1] != width:
            raise QuantError(
                f"{cls.type.name}: expected {dtype} [n, {width}], got {blocks.dtype} "
                f"{list(blocks.shape)}"
            )
