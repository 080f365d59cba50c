"""GGUF files: header, typed metadata, and tensors that load on first use."""

from typing import TYPE_CHECKING, Any

from ingot.gguf.header import Entry
from ingot.gguf.loader import GgufLoader
from ingot.gguf.metadata import Metadata, StringArray, Value
from ingot.gguf.mmap import MmapGguf
from ingot.gguf.tensor import HasTensors, LazyTensor
from ingot.gguf.types import GgmlType, ValueType

if TYPE_CHECKING:
    from ingot.gguf.writer import GgufWriter as GgufWriter

__all__ = [
    "Entry",
    "GgmlType",
    "GgufLoader",
    "GgufWriter",
    "HasTensors",
    "LazyTensor",
    "Metadata",
    "MmapGguf",
    "StringArray",
    "Value",
    "ValueType",
]


def __getattr__(name: str) -> Any:
    # The writer is imported on first use, because reading does not need it.
    if name != "GgufWriter":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ingot.gguf.writer import GgufWriter  # noqa: PLC0415

    return GgufWriter
