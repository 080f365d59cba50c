"""Where keys and values lie in the cache: arithmetic only, shared by all backends.

Layers that keep the same positions (all of them, or the same window) form a group. A
block holds BLOCK_TOKENS positions of every layer of its group: layer after layer, in each
head after head, the head's keys and then its values.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ingot import _native
from ingot.errors import ModelError
from ingot.gguf import GgmlType
from ingot.graph.check import KvLayer

BLOCK_TOKENS = _native.KV_BLOCK_TOKENS
KV_TYPES = (GgmlType.F32, GgmlType.F16, GgmlType.BF16, GgmlType.Q8_0, GgmlType.Q4_0)


@dataclass(frozen=True, slots=True)
class KvGroup:
    """Layers that share blocks."""

    window: int
    block_bytes: int


@dataclass(frozen=True, slots=True)
class KvPlace:
    """A layer's group and its offset inside a block of the group."""

    group: int
    offset: int


@dataclass(frozen=True, slots=True)
class KvLayout:
    """The cache of a whole model for one storage type."""

    type: GgmlType
    groups: tuple[KvGroup, ...]
    places: tuple[KvPlace, ...]

    @classmethod
    def of(cls, layers: Sequence[KvLayer], type: GgmlType) -> "KvLayout":
        """Lay out the layers of a graph."""
        if type not in KV_TYPES:
            known = ", ".join(kind.name for kind in KV_TYPES)
            raise ModelError(f"the cache cannot be {type.name}; it can be {known}")
        windows: list[int] = []
        sizes: list[int] = []
        places: list[KvPlace] = []
        for layer in layers:
            if layer.head_size % type.block_size:
                raise ModelError(
                    f"keys and values of {layer.head_size} elements cannot be stored as "
                    f"{type.name}, which takes multiples of {type.block_size}; choose f16"
                )
            if layer.window not in windows:
                windows.append(layer.window)
                sizes.append(0)
            group = windows.index(layer.window)
            places.append(KvPlace(group, sizes[group]))
            row = layer.head_size // type.block_size * type.block_bytes
            sizes[group] += 2 * layer.heads * row * BLOCK_TOKENS
        groups = tuple(KvGroup(*group) for group in zip(windows, sizes, strict=True))
        return cls(type, groups, tuple(places))


def whole_blocks(tokens: int) -> int:
    """Tokens, rounded up to whole blocks: what a sequence of so many takes."""
    return -(-tokens // BLOCK_TOKENS) * BLOCK_TOKENS
