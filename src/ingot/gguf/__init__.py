"""GGUF files: header, typed metadata and tensors that load when they are used."""

from typing import TYPE_CHECKING, Any

from ingot.gguf.header import Entry
from ingot.gguf.loader import GgufLoader
from ingot.gguf.metadata import Metadata, StringArray, Value
from ingot.gguf.mmap import MmapGguf
from ingot.gguf.tensor import LazyTensor
from ingot.gguf.types import GgmlType, ValueType

if TYPE_CHECKING:
    from ingot.gguf.writer import GgufWriter as GgufWriter

__all__ = [
    "Entry",
    "GgmlType",
    "GgufLoader",
    "GgufWriter",
    "LazyTensor",
    "Metadata",
    "MmapGguf",
    "StringArray",
    "Value",
    "ValueType",
]


def __getattr__(name: str) -> Any:
    # The writer, which reading does not need: on first use.
    if name != "GgufWriter":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ingot.gguf.writer import GgufWriter  # noqa: PLC0415

    return GgufWriter
