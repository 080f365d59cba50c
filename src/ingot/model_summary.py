"""A GGUF file in numbers, for `inspect`, `list`, `bench` and the server's lists of models.

An open file comes in; frozen data goes out. It prints nothing and does not know architectures:
a fact that a file does not state, or not as expected, is None.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Final

from ingot.gguf import GgmlType, GgufLoader, LazyTensor
from ingot.memory_estimate import ModelDimensions, vocabulary_size

# `general.file_type`: the name of the mix of tensor types.
_FILE_TYPES: Final = MappingProxyType(
    dict(enumerate(("F32", "F16", "Q4_0", "Q4_1")))
    | dict(enumerate(("Q8_0", "Q5_0", "Q5_1", "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L"), 7))
    | dict(enumerate(("Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K"), 14))
    | dict(enumerate(("IQ2_XXS", "IQ2_XS", "Q2_K_S", "IQ3_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL"), 19))
    | dict(enumerate(("IQ3_S", "IQ3_M", "IQ2_S", "IQ2_M", "IQ4_XS", "IQ1_M", "BF16"), 26))
    | {36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE", 40: "Q1_0", 41: "Q2_0"}
)

_BLOCK_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


@dataclass(frozen=True, slots=True)
class TypeShare:
    """All tensors of one type."""

    type: GgmlType
    tensors: int
    weights: int
    bytes: int
    share: float  # of the bytes of all tensors, 0 to 1

    @property
    def bits_per_weight(self) -> float:
        """Bits per weight of this type."""
        return 8 * self.bytes / self.weights


@dataclass(frozen=True, slots=True)
class TensorGroup:
    """The same tensor of all layers: `blk.*.attn_q.weight`."""

    name: str
    tensors: int
    types: tuple[GgmlType, ...]
    shapes: tuple[tuple[int, ...], ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """A model, in one file or several."""

    files: tuple[str, ...]
    file_bytes: int
    version: int
    architecture: str | None
    name: str | None
    parameters: int
    tensor_bytes: int
    quantization: str
    dimensions: ModelDimensions | None
    vocabulary: int
    vocabulary_kind: str | None
    pre_tokenizer: str | None
    chat_template: str | None
    types: tuple[TypeShare, ...]  # largest first
    groups: tuple[TensorGroup, ...]  # in file order

    @property
    def bits_per_weight(self) -> float | None:
        """Average bits per weight; None without tensors."""
        return 8 * self.tensor_bytes / self.parameters if self.parameters else None

    @classmethod
    def of(cls, loader: GgufLoader) -> "ModelSummary":
        """Summarize an open file; only its header is read."""
        tensors = list(loader.tensors.values())
        return cls(
            files=tuple(str(file.path) for file in loader.files),
            file_bytes=sum(file.size for file in loader.files),
            version=loader.version,
            architecture=architecture(loader),
            name=_text(loader, "general.name"),
            parameters=sum(prod(tensor.shape) for tensor in tensors),
            tensor_bytes=sum(tensor.nbytes for tensor in tensors),
            quantization=quantization(loader),
            dimensions=ModelDimensions.from_metadata(loader.metadata),
            vocabulary=vocabulary_size(loader.metadata),
            vocabulary_kind=_text(loader, "tokenizer.ggml.model"),
            pre_tokenizer=_text(loader, "tokenizer.ggml.pre"),
            chat_template=_text(loader, "tokenizer.chat_template"),
            types=_types(tensors),
            groups=_groups(tensors),
        )


def architecture(loader: GgufLoader) -> str | None:
    """`general.architecture`, if it is a string."""
    return _text(loader, "general.architecture")


def quantization(loader: GgufLoader) -> str:
    """The name of the mix (`Q4_K_M`), or the tensor type with the most bytes."""
    recipe = loader.metadata.get("general.file_type")
    if type(recipe) is int and recipe in _FILE_TYPES:
        return _FILE_TYPES[recipe]
    types = _types(loader.tensors.values())
    return types[0].type.name if types else "no tensors"


def _text(loader: GgufLoader, key: str) -> str | None:
    value = loader.metadata.get(key)
    return value if isinstance(value, str) else None


def _types(tensors: Iterable[LazyTensor]) -> tuple[TypeShare, ...]:
    by_type: dict[GgmlType, list[LazyTensor]] = {}
    for tensor in tensors:
        by_type.setdefault(tensor.type, []).append(tensor)
    sizes = {kind: sum(tensor.nbytes for tensor in group) for kind, group in by_type.items()}
    total = sum(sizes.values())
    return tuple(
        TypeShare(
            type=kind,
            tensors=len(by_type[kind]),
            weights=sum(prod(tensor.shape) for tensor in by_type[kind]),
            bytes=sizes[kind],
            share=sizes[kind] / total,
        )
        for kind in sorted(sizes, key=lambda kind: (-sizes[kind], kind))
    )


def _groups(tensors: Iterable[LazyTensor]) -> tuple[TensorGroup, ...]:
    by_name: dict[str, list[LazyTensor]] = {}
    for tensor in tensors:
        by_name.setdefault(_BLOCK_NUMBER.sub("*", tensor.name), []).append(tensor)
    return tuple(
        TensorGroup(
            name=name,
            tensors=len(group),
            types=tuple(dict.fromkeys(tensor.type for tensor in group)),
            shapes=tuple(dict.fromkeys(tensor.shape for tensor in group)),
            bytes=sum(tensor.nbytes for tensor in group),
        )
        for name, group in by_name.items()
    )
