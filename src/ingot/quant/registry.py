"""Find the format of a tensor type.

In: a `GgmlType`, or the number a file stores for it. Out: the class that knows the
format. A new format is one more subclass of `BlockFormat` in a module imported here.
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from ingot.errors import QuantError
from ingot.gguf import GgmlType
from ingot.quant import fp4, iq, iq4, k_quants, legacy, plain, ternary  # noqa: F401
from ingot.quant.block import BlockFormat


@cache
def formats() -> Mapping[GgmlType, type[BlockFormat]]:
    """Every format, by its type."""
    return MappingProxyType({f.type: f for f in BlockFormat.__subclasses__()})


def format_of(type: int) -> type[BlockFormat]:
    """Find the format of a type; an unknown number raises QuantError."""
    try:
        return formats()[GgmlType(type)]
    except (KeyError, ValueError):
        raise QuantError(f"unknown tensor type {type}") from None
