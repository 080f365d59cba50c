"""How many blocks a cache has: from the layout, the context and what was asked for.

Unless somebody says how many tokens the cache is for, these are four contexts, if they take no
more than a quarter of the memory. Of states, which do not grow with a text, there is one for every
STATE_RUNS blocks, or enough for many short texts.
"""

from dataclasses import dataclass

from ingot.engine import memory
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout, block_count
from ingot.kvcache.sequence import STATE_RUNS

_CONTEXTS, _MEMORY_SHARE = 4, 4
_STATES = 64  # two for each of 32 texts that run
_FEWEST_STATES = 8  # two for one, and some to begin others with


@dataclass(frozen=True, slots=True)
class CacheSize:
    """Blocks of every group of keys and values, and of the group of states."""

    blocks: int
    states: int


def cache_size(layout: KvLayout, context: int, tokens: int | None, room: int) -> CacheSize:
    """Decide; `room` is the memory that is free where the cache will be."""
    one = block_count(context)
    kv_bytes, state_bytes = _block_bytes(layout)
    if tokens is None:
        share = room // _MEMORY_SHARE
        blocks = states = _CONTEXTS * one
        if kv_bytes:
            blocks = min(blocks, share // kv_bytes)
        if state_bytes:
            states = min(max(states // STATE_RUNS, _STATES), share // state_bytes)
    else:
        blocks = block_count(tokens)
        states = blocks // STATE_RUNS
    return CacheSize(max(blocks, one), max(states, _FEWEST_STATES) if state_bytes else 0)


def require_memory(layout: KvLayout, size: CacheSize) -> None:
    """Make sure that there is memory for a cache."""
    kv_bytes, state_bytes = _block_bytes(layout)
    kept = [f"{size.blocks * BLOCK_TOKENS} tokens as {layout.type.value}"]
    if state_bytes:
        kept = [*(kept if kv_bytes else []), f"{size.states} states"]
    memory.require(
        size.blocks * kv_bytes + size.states * state_bytes,
        f"a cache for {' and '.join(kept)}",
        "choose a smaller context or cache, or a smaller kv_type",
    )


def _block_bytes(layout: KvLayout) -> tuple[int, int]:
    """Bytes of a block of all groups of keys and values, and of a state."""
    recurrent = [group.block_bytes for group in layout.groups if group.recurrent]
    return sum(group.block_bytes for group in layout.groups) - sum(recurrent), sum(recurrent)
