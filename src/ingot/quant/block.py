"""What a block format is: a fixed number of bytes that holds a fixed number of weights.

In: the bytes of whole blocks, or float32 weights. Out: the other of the two, in NumPy.
This is the plain statement of every format, the twin that the native kernels (which
`ingot.quant.decode` and `encode` call) are tested against. Knows nothing of files,
shapes or threads.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ingot.arrays import Bytes, Floats
from ingot.errors import QuantError
from ingot.gguf import GgmlType


class BlockFormat(ABC):
    """One block format: a subclass, made with its type as class argument.

    A subclass draws its layout in its docstring and says what the bytes mean in
    `_decode` and, where the encoding is simple, `_encode`.
    """

    type: ClassVar[GgmlType]

    def __init_subclass__(cls, *, type: GgmlType) -> None:
        cls.type = type

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
    @abstractmethod
    def _decode(cls, blocks: Bytes) -> Floats: ...

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
