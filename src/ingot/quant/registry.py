"""Find the format of a tensor type.

In: a `GgmlType`, or the number a file stores for it. Out: the class that knows the format: any
subclass of `BlockFormat` in a module of this folder.
"""

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType

from ingot import quant
from ingot.errors import QuantError
from ingot.gguf import GgmlType
from ingot.quant.block import BlockFormat


@cache
def formats() -> Mapping[GgmlType, type[BlockFormat]]:
    """Every format, by its type."""
    for module in pkgutil.iter_modules(quant.__path__):
        import_module(f"{quant.__name__}.{module.name}")
    return MappingProxyType({f.type: f for f in BlockFormat.__subclasses__()})


def format_of(type: int) -> type[BlockFormat]:
    """Find the format of a type; an unknown number raises QuantError."""
    try:
        return formats()[GgmlType(type)]
    except (KeyError, ValueError):
        raise QuantError(f"unknown tensor type {type}") from None
