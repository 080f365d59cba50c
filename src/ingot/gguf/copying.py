"""Copies of GGUF files: the same keys and tensors in another file, some of them changed.

In: an open model and a writer. Out: nothing; the writer then has what was copied. Values keep their
types and their bytes, also strings that are not valid UTF-8. It does not know what a key means.
"""

from collections.abc import Collection

from ingot.gguf.loader import GgufLoader
from ingot.gguf.splits import COUNT_KEY, NUMBER_KEY, TENSORS_KEY
from ingot.gguf.tensor import LazyTensor
from ingot.gguf.types import ValueType
from ingot.gguf.writer import GgufWriter

# Keys about the file itself, which a writer sets.
FILE_KEYS = frozenset({"general.alignment", NUMBER_KEY, COUNT_KEY, TENSORS_KEY})


def copy_keys(source: GgufLoader, writer: GgufWriter, *, without: Collection[str] = ()) -> None:
    """Add the keys of a model, except for some and for those about the file itself."""
    metadata = source.metadata
    for key in metadata:
        if key in FILE_KEYS or key in without:
            continue
        entry = metadata.entry(key)
        value = metadata.raw_string(key) if entry.type is ValueType.STRING else metadata[key]
        writer.add(key, value, entry.element_type)


def copy_tensor(tensor: LazyTensor, writer: GgufWriter, name: str | None = None) -> None:
    """Add a tensor with its bytes, which are copied when the file is written."""
    writer.add_lazy_tensor(name or tensor.name, tensor.type, tensor.shape, lambda: tensor.stored)
