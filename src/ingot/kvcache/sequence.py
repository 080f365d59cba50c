"""Sequence: the blocks that one text holds. Pure bookkeeping.

A sequence takes a block from each group when it grows past the last one and gives back, in
groups with a window, those that no later token can see. Blocks that are full are never written
again, so forks and the prefix tree share them; the last one, still filling, has one owner.
"""

from collections.abc import Sequence as Items
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ingot.errors import CacheFullError
from ingot.graph.kv_layout import BLOCK_TOKENS
from ingot.kvcache.pool import BlockPool

Ints = NDArray[np.int32]
NO_BLOCK = -1


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
    tables: list[Ints] = field(init=False)  # entries of runs that were given back mean nothing
    _first: list[int] = field(init=False)  # runs before this one were given back

    def __post_init__(self) -> None:
        groups = len(self.pool.layout.groups)
        self.tables = [np.empty(0, np.int32) for _ in range(groups)]
        self._first = [0] * groups

    def adopt(self, runs: Items[Items[int]]) -> None:
        """Begin an empty sequence with full runs that are in the cache: [runs][groups] blocks."""
        self.length = len(runs) * BLOCK_TOKENS
        for group in range(len(self.tables)):
            first = oldest_run(self.pool, group, self.length)
            blocks = [run[group] for run in runs[first:]]
            for block in blocks:
                self.pool.share(group, block)
            self.tables[group] = np.array([0] * first + blocks, np.int32)
            self._first[group] = first

    def begin_at(self, length: int, first: Items[int]) -> None:
        """Begin an empty sequence with room for tokens, in each group from a run on."""
        runs = -(-length // BLOCK_TOKENS)
        self._first = list(first)
        try:
            for group, oldest in enumerate(first):
                self.tables[group] = np.zeros(oldest, np.int32)
                for _ in range(oldest, runs):
                    block = np.array([self.pool.take(group)], np.int32)
                    self.tables[group] = np.concatenate([self.tables[group], block])
        except CacheFullError:
            self.close()
            raise
        self.length = length

    def grow(self, tokens: int) -> None:
        """Make room for more tokens; nothing changes if there is none."""
        runs = -(-(self.length + tokens) // BLOCK_TOKENS)
        fresh: list[list[int]] = [[] for _ in self.tables]
        try:
            for group, table in enumerate(self.tables):
                for _ in range(len(table), runs):
                    fresh[group].append(self.pool.take(group))
        except CacheFullError:
            for group, blocks in enumerate(fresh):
                for block in blocks:
                    self.pool.give_back(group, block)
            raise
        for group, blocks in enumerate(fresh):
            if blocks:
                added = np.array(blocks, np.int32)
                self.tables[group] = np.concatenate([self.tables[group], added])
        self.length += tokens

    def can_shrink(self, length: int) -> bool:
        """Whether all that a token at position `length` sees is still held."""
        return all(
            first <= oldest_run(self.pool, group, length) for group, first in enumerate(self._first)
        )

    def shrink(self, length: int) -> None:
        """Take the last tokens back; later ones are written in their place.

        It can be done to any length since the last `release_passed`; see `can_shrink` for others.
        """
        runs = -(-length // BLOCK_TOKENS)
        for group, table in enumerate(self.tables):
            for block in table[runs:].tolist():
                self.pool.give_back(group, block)
            self.tables[group] = table[:runs]
        self.length = length

    def release_passed(self) -> None:
        """Give back the blocks that fell out of their window."""
        for group in range(len(self.tables)):
            oldest = oldest_run(self.pool, group, self.length)
            for run in range(self._first[group], oldest):
                self.pool.give_back(group, int(self.tables[group][run]))
            self._first[group] = max(self._first[group], oldest)

    @property
    def first_runs(self) -> tuple[int, ...]:
        """The first run of each group that was not given back."""
        return tuple(self._first)

    def run_blocks(self, run: int) -> list[int]:
        """A run's block in every group, `NO_BLOCK` where it was given back."""
        return [
            int(table[run]) if run >= first else NO_BLOCK
            for table, first in zip(self.tables, self._first, strict=True)
        ]

    def fork(self) -> tuple["Sequence", list[BlockCopy]]:
        """A sequence that goes on from the same tokens, and the blocks to copy for it.

        Only the last block, if tokens still fit into it, becomes two. Nothing changes if there is
        no room for it.
        """
        copy = Sequence(self.pool)
        copies: list[BlockCopy] = []
        full = self.length // BLOCK_TOKENS
        try:
            for group, table in enumerate(self.tables):
                for run in range(max(full, self._first[group]), len(table)):
                    source = int(table[run])
                    copies.append(BlockCopy(group, source, self.pool.take(group)))
        except CacheFullError:
            for made in copies:
                self.pool.give_back(made.group, made.target)
            raise
        targets = {(made.group, made.source): made.target for made in copies}
        for group, table in enumerate(self.tables):
            for run in range(self._first[group], min(full, len(table))):
                self.pool.share(group, int(table[run]))
            entries = [targets.get((group, block), block) for block in table.tolist()]
            copy.tables[group] = np.array(entries, np.int32)
        copy._first = list(self._first)
        copy.length = self.length
        return copy, copies

    def close(self) -> None:
        """Give everything back; the end first, which is worth least to others."""
        for group, table in enumerate(self.tables):
            for block in table[self._first[group] :][::-1].tolist():
                self.pool.give_back(group, block)
        self.tables = [np.empty(0, np.int32) for _ in self.tables]
        self._first = [0] * len(self.tables)
        self.length = 0


def oldest_run(pool: BlockPool, group: int, length: int) -> int:
    """The first run of a group that a token at position `length` or later can see."""
    window = pool.layout.groups[group].window
    return max(0, length - window + 1) // BLOCK_TOKENS if window else 0
