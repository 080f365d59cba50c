"""GGUF files: header, typed metadata and tensors that load when they are used."""

from ingot.gguf.header import Entry
from ingot.gguf.loader import CacheCounts, GgufLoader
from ingot.gguf.metadata import Metadata, StringArray, Value
from ingot.gguf.mmap import MmapGguf
from ingot.gguf.tensor import Backend, LazyTensor, TensorState
from ingot.gguf.types import GgmlType, ValueType
from ingot.gguf.writer import GgufWriter

__all__ = [
    "Backend",
    "CacheCounts",
    "Entry",
    "GgmlType",
    "GgufLoader",
    "GgufWriter",
    "LazyTensor",
    "Metadata",
    "MmapGguf",
    "StringArray",
    "TensorState",
    "Value",
    "ValueType",
]
