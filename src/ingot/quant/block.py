"""What a block format is: a fixed number of bytes that holds a fixed number of weights.

In: the bytes of whole blocks, or float32 weights. Out: the other of the two, in NumPy.
This is the plain statement of every format, the twin that the native kernels (which
`ingot.quant.decode` and `encode` call) are tested against. Knows nothing of files,
shapes or threads.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot import _native
from ingot.errors import QuantError

Bytes: TypeAlias = NDArray[np.uint8]
Floats: TypeAlias = NDArray[np.float32]

_NATIVE_TYPES = {name: row for name, *row in _native.tensor_types()}


class BlockFormat(ABC):
    """One block format; a subclass is the format, named as GGUF names its type.

    Its number and sizes come from the one list of types (native/formats/types.h). A
    subclass draws its layout in its docstring and says what the bytes mean in
    `_decode` and, where NumPy can encode it, `_encode`.
    """

    name: ClassVar[str]
    number: ClassVar[int]  # of the type, in a GGUF file
    block_weights: ClassVar[int]
    block_bytes: ClassVar[int]

    def __init_subclass__(cls) -> None:
        cls.name = cls.__name__
        cls.number, cls.block_weights, cls.block_bytes = _NATIVE_TYPES[cls.name]

    @classmethod
    def decode_blocks(cls, blocks: Bytes) -> Floats:
        """Turn uint8 [n, block_bytes] into float32 [n, block_weights]."""
        cls._check(blocks, np.dtype(np.uint8), cls.block_bytes)
        with np.errstate(all="ignore"):  # any bytes are a block, infinite scales included
            return cls._decode(np.ascontiguousarray(blocks))

    @classmethod
    def encode_blocks(cls, weights: Floats) -> Bytes:
        """Turn float32 [n, block_weights] into uint8 [n, block_bytes]."""
        cls._check(weights, np.dtype(np.float32), cls.block_weights)
        with np.errstate(all="ignore"):  # huge and tiny weights leave the range of a scale
            return cls._encode(np.ascontiguousarray(weights))

    @classmethod
    @abstractmethod
    def _decode(cls, blocks: Bytes) -> Floats: ...

    @classmethod
    def _encode(cls, weights: Floats) -> Bytes:  # noqa: ARG003
        raise QuantError(f"{cls.name} has no encoder in NumPy")

    @classmethod
    def _check(cls, blocks: NDArray[Any], dtype: np.dtype[Any], width: int) -> None:
        if blocks.dtype != dtype or blocks.ndim != 2 or blocks.shape[1] != width:
            raise QuantError(
                f"{cls.name}: expected {dtype} [n, {width}], got {blocks.dtype} "
                f"{list(blocks.shape)}"
            )
