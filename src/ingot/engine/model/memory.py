"""Memory of the system, and how many blocks a KV cache gets of it.

By default the cache is for four contexts, if they take no more than a quarter of the memory. That
of a GPU is for 2048 tokens of each sequence that it decodes at once, if they take no more than half
of its memory. States of recurrent models do not grow with
a text: there is one for every STATE_RUNS blocks, or enough for many short texts.
"""

import sys
from dataclasses import dataclass

from ingot.errors import MemoryShortageError
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout, block_count
from ingot.kvcache.sequence_blocks import STATE_RUNS
from ingot.machine import available_memory

_CONTEXTS, _MEMORY_SHARE = 4, 4
_SEQUENCE_BLOCKS = 32  # of one of many sequences, at least: 1024 tokens
_WISHED_BLOCKS = 64  # of one of many sequences, if there is room: 2048 tokens
_STATES = 64  # two for each of 32 running sequences
DEFAULT_RUNNING, _MOST_RUNNING = 32, 256  # sequences at once, if no number is asked for
_FEWEST_STATES = 8  # two for one sequence, and some for others to begin with

available = available_memory


def require(needed: int, purpose: str, remedy: str) -> None:
    """Raise an error that says what the bytes are for and what to do, if they are not available."""
    room = available()
    if needed > room:
        raise MemoryShortageError(
            f"{purpose} takes {needed / 2**20:.0f} MiB of memory, and {room / 2**20:.0f} MiB "
            f"are available: {remedy}"
        )


@dataclass(frozen=True, slots=True)
class CacheSize:
    """Blocks of every group of keys and values, and of the group of states."""

    blocks: int
    states: int

    @classmethod
    def of(
        cls, layout: KvLayout, context: int, tokens: int | None, room: int, sequences: int = 0
    ) -> "CacheSize":
        """The size for `tokens`, or the default if there are `room` bytes where the cache will be.

        It has room for one context at least. `sequences` run at once.
        """
        one = block_count(context)
        kv_bytes, state_bytes = _block_bytes(layout)
        if tokens is None:
            blocks = states = max(_CONTEXTS * one, sequences * min(_WISHED_BLOCKS, one))
            if kv_bytes:
                most = room // 2 if sequences else share(room)
                blocks = min(blocks, most // kv_bytes)
            if state_bytes:
                states = min(max(states // STATE_RUNS, _STATES), share(room) // state_bytes)
        else:
            blocks = block_count(tokens)
            states = blocks // STATE_RUNS
        return cls(max(blocks, one), max(states, _FEWEST_STATES) if state_bytes else 0)

    def nbytes(self, layout: KvLayout) -> int:
        """Bytes of a cache of this size."""
        kv_bytes, state_bytes = _block_bytes(layout)
        return self.blocks * kv_bytes + self.states * state_bytes

    def require(self, layout: KvLayout) -> None:
        """Raise an error if there is no memory for a cache of this size."""
        kv_bytes, state_bytes = _block_bytes(layout)
        kept = [f"{self.blocks * BLOCK_TOKENS} tokens as {layout.type.value}"]
        if state_bytes:
            kept = [*(kept if kv_bytes else []), f"{self.states} states"]
        require(
            self.nbytes(layout),
            f"a cache for {' and '.join(kept)}",
            "choose a smaller context or cache, or a smaller kv_type",
        )


def sequences_for(layout: KvLayout, context: int, room: int) -> int:
    """How many sequences a GPU decodes at once by default, if it has `room` bytes free.

    As many as have 1024 tokens each in the cache's share of them, from 32 to 256.
    """
    kv_bytes, _ = _block_bytes(layout)
    one = max(kv_bytes * min(_SEQUENCE_BLOCKS, block_count(context)), 1)
    fitting = share(room) // one
    return max(DEFAULT_RUNNING, min(fitting // DEFAULT_RUNNING * DEFAULT_RUNNING, _MOST_RUNNING))


def share(room: int) -> int:
    """How many of `room` bytes a model may take beside its weights without being asked to."""
    return room // _MEMORY_SHARE


def most_tokens(layout: KvLayout, room: int) -> int:
    """The longest context whose cache takes no more than its share of `room` bytes."""
    kv_bytes, _ = _block_bytes(layout)
    return share(room) // kv_bytes * BLOCK_TOKENS if kv_bytes else sys.maxsize


def _block_bytes(layout: KvLayout) -> tuple[int, int]:
    """Bytes of a block of all groups of keys and values, and of a state."""
    recurrent = [group.block_bytes for group in layout.groups if group.recurrent]
    return sum(group.block_bytes for group in layout.groups) - sum(recurrent), sum(recurrent)
