"""Where keys and values lie in the cache: arithmetic only, shared by all backends.

Layers that keep the same positions (all of them, or the same window) form a group. A
block holds BLOCK_TOKENS positions of every layer of its group: layer after layer, in each
head after head, the head's keys and then its values; of latents the keys alone.

Recurrent operations form one more group, the last: a block of it holds all their states
(`ingot.graph.ops.recurrent`) after one token of a run of BLOCK_TOKENS, the last that was computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ingot import _native
from ingot.errors import ModelError
from ingot.graph.kv_type import KvType
from ingot.graph.ops import KvLayer

BLOCK_TOKENS = _native.KV_BLOCK_TOKENS
_FLOAT, _ALIGNMENT = 4, 64  # bytes


@dataclass(frozen=True, slots=True)
class KvGroup:
    """Layers that share blocks."""

    window: int  # positions that stay visible; 0: all of them
    block_bytes: int
    recurrent: bool = False  # a block holds what is left of all tokens up to one

    def oldest_run(self, length: int) -> int:
        """The first run of positions that a token at position `length` or later looks at."""
        if self.recurrent:
            return max(0, length - 1) // BLOCK_TOKENS
        return max(0, length - self.window + 1) // BLOCK_TOKENS if self.window else 0

    def blocks_of(self, tokens: int, step: int) -> int:
        """The most blocks that a text of so many tokens takes, `step` of them at a time."""
        if self.recurrent:
            return 2  # the state it comes from and the one it goes to
        if self.window:  # blocks that are passed go back after every step
            tokens = min(tokens, self.window + step)
        return -(-tokens // BLOCK_TOKENS)


@dataclass(frozen=True, slots=True)
class KvPlace:
    """A layer's group and its offset inside a block of the group."""

    group: int
    offset: int


@dataclass(frozen=True, slots=True)
class KvLayout:
    """The cache of a whole model for one storage type."""

    type: KvType
    groups: tuple[KvGroup, ...]
    places: tuple[KvPlace, ...]
    states: tuple[KvPlace, ...] = ()  # of recurrent operations

    @classmethod
    def of(cls, layers: Sequence[KvLayer], type: KvType, states: Sequence[int] = ()) -> "KvLayout":
        """Lay out the layers of a graph and its states, of so many floats each."""
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
            sizes[group] += layer.rows * type.row_bytes(layer.head_size) * BLOCK_TOKENS
        groups = [KvGroup(*group) for group in zip(windows, sizes, strict=True)]
        kept, size = [], 0
        for floats in states:
            kept.append(KvPlace(len(groups), size))
            size += -(-floats * _FLOAT // _ALIGNMENT) * _ALIGNMENT
        if states:
            groups.append(KvGroup(0, size, recurrent=True))
        return cls(type, tuple(groups), tuple(places), tuple(kept))

    @property
    def recurrent(self) -> bool:
        """Whether it has states, which cannot be taken back to an earlier token."""
        return bool(self.states)


def block_count(tokens: int) -> int:
    """Blocks that a sequence of so many tokens takes."""
    return -(-tokens // BLOCK_TOKENS)


def whole_blocks(tokens: int) -> int:
    """Tokens, rounded up to whole blocks: what a sequence of so many takes."""
    return block_count(tokens) * BLOCK_TOKENS
