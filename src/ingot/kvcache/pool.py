"""Blocks of a fixed pool and the sequences that hold them. Pure bookkeeping: no tensors.

Every cache group (see `ingot.graph.kv_layout`) has as many blocks as the others. A
sequence takes a block from each group when it grows past the last one and gives back, in
groups with a window, those that no later token can see. A fork shares the blocks that are
full: nobody writes to these any more.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ingot.errors import CacheFullError
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout


class BlockPool:
    """The free blocks of every group."""

    def __init__(self, layout: KvLayout, blocks: int) -> None:
        self.layout = layout
        self.blocks = blocks
        self._free = [list(range(blocks - 1, -1, -1)) for _ in layout.groups]
        self._holders = [[0] * blocks for _ in layout.groups]

    def take(self, group: int) -> int:
        """A free block of a group."""
        if not self._free[group]:
            raise CacheFullError(
                f"all {self.blocks} blocks of the cache ({self.blocks * BLOCK_TOKENS} tokens) "
                "are in use; give it more memory or wait for a sequence to end"
            )
        block = self._free[group].pop()
        self._holders[group][block] = 1
        return block

    def share(self, group: int, block: int) -> None:
        """Hold a block once more."""
        self._holders[group][block] += 1

    def give_back(self, group: int, block: int) -> None:
        """Let go of a block; it is free when nobody holds it."""
        self._holders[group][block] -= 1
        if self._holders[group][block] == 0:
            self._free[group].append(block)

    def free(self, group: int) -> int:
        """How many blocks a group has left."""
        return len(self._free[group])


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """A block whose content another one is to have."""

    group: int
    source: int
    target: int


@dataclass(slots=True)
class Sequence:
    """One sequence's blocks: per group a table from runs of positions to blocks."""

    pool: BlockPool
    length: int = 0
    _tables: list[NDArray[np.int32]] = field(init=False)
    _first: list[int] = field(init=False)  # runs before this one were given back

    def __post_init__(self) -> None:
        groups = len(self.pool.layout.groups)
        self._tables = [np.empty(0, np.int32) for _ in range(groups)]
        self._first = [0] * groups

    def grow(self, tokens: int) -> list[NDArray[np.int32]]:
        """Make room for more tokens and return the tables; nothing changes if there is none."""
        runs = -(-(self.length + tokens) // BLOCK_TOKENS)
        fresh: list[list[int]] = [[] for _ in self._tables]
        try:
            for group, table in enumerate(self._tables):
                for _ in range(len(table), runs):
                    fresh[group].append(self.pool.take(group))
        except CacheFullError:
            for group, blocks in enumerate(fresh):
                for block in blocks:
                    self.pool.give_back(group, block)
            raise
        tables = [
            np.concatenate([table, np.array(blocks, np.int32)])
            for table, blocks in zip(self._tables, fresh, strict=True)
        ]
        self._tables = tables
        self.length += tokens
        return tables

    def release_passed(self) -> None:
        """Give back the blocks that fell out of their window."""
        for group, spec in enumerate(self.pool.layout.groups):
            if not spec.window:
                continue
            oldest = max(0, self.length - spec.window + 1) // BLOCK_TOKENS
            for run in range(self._first[group], oldest):
                self.pool.give_back(group, int(self._tables[group][run]))
            self._first[group] = max(self._first[group], oldest)

    def fork(self) -> tuple["Sequence", list[BlockCopy]]:
        """A sequence that goes on from the same tokens, and the blocks to copy for it.

        Only the last block, if tokens still fit into it, becomes two. Nothing changes if there is
        no room for it.
        """
        copy = Sequence(self.pool)
        copies: list[BlockCopy] = []
        full = self.length // BLOCK_TOKENS
        try:
            for group, table in enumerate(self._tables):
                for run in range(max(full, self._first[group]), len(table)):
                    source = int(table[run])
                    copies.append(BlockCopy(group, source, self.pool.take(group)))
        except CacheFullError:
            for made in copies:
                self.pool.give_back(made.group, made.target)
            raise
        targets = {(made.group, made.source): made.target for made in copies}
        for group, table in enumerate(self._tables):
            for run in range(self._first[group], min(full, len(table))):
                self.pool.share(group, int(table[run]))
            entries = [targets.get((group, block), block) for block in table.tolist()]
            copy._tables[group] = np.array(entries, np.int32)
        copy._first = list(self._first)
        copy.length = self.length
        return copy, copies

    def close(self) -> None:
        """Give everything back."""
        for group, table in enumerate(self._tables):
            for block in table[self._first[group] :]:
                self.pool.give_back(group, int(block))
        self._tables = [np.empty(0, np.int32) for _ in self._tables]
        self._first = [0] * len(self._tables)
        self.length = 0
