"""Find the format of a tensor type.

In: the number a GGUF file stores (`ingot.gguf.GgmlType` or a plain int). Out: the class
that knows the format. A new format is a new subclass of `BlockFormat` in one of the
family modules imported here.
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from ingot.errors import QuantError
from ingot.quant import fp4, iq, iq4, k_quants, legacy, plain, ternary  # noqa: F401
from ingot.quant.block import BlockFormat


@cache
def formats() -> Mapping[int, type[BlockFormat]]:
    """Every format, by type number."""
    found = sorted(BlockFormat.__subclasses__(), key=lambda f: f.number)
    return MappingProxyType({f.number: f for f in found})


def format_of(type: int) -> type[BlockFormat]:
    """Find the format of a type number; an unknown one raises QuantError."""
    if type not in formats():
        raise QuantError(f"unknown tensor type {type}")
    return formats()[type]
