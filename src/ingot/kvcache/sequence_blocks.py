"""SequenceBlocks: the blocks of the cache that one sequence holds. Pure bookkeeping.

A sequence takes a block from each group when it grows past the last one. In groups with a sliding
window it gives back those that no later token can see. Full blocks are never written again, so
forks and the prefix tree share them; the last block, which is not full, has one owner.

A run is the BLOCK_TOKENS positions that a block covers. Of recurrent operations a later token needs
only the state before it: a sequence that grows takes a block for the run it ends in. Some of the
runs between get one too if there are spare ones, and their states stay for texts that begin in the
same way (`_keeps_state`). A state cannot be taken back to an earlier token: a sequence that may
have to go back keeps a copy of it first (`keep_states`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ingot.arrays import Ints
from ingot.errors import CacheFullError
from ingot.graph.kv_layout import BLOCK_TOKENS
from ingot.kvcache.pool import BlockPool

NO_BLOCK = -1
STATE_RUNS = 4  # the state of every fourth run of a prompt is kept


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """A block to copy into another one."""

    group: int
    source: int
    target: int


@dataclass(slots=True)
class SequenceBlocks:
    """One sequence's blocks: per group a table from runs of positions to blocks."""

    pool: BlockPool
    length: int = 0
    expanded: bool = False  # the latents of a prompt (`Attend`)
    tables: list[Ints] = field(init=False)  # entries of runs that were given back are undefined;
    # NO_BLOCK stands for a run whose state is not kept
    _first: list[int] = field(init=False)  # runs before this one were given back
    _kept_at: int | None = None  # the length that `shrink` can come back to
    _kept: dict[int, int] = field(default_factory=dict)  # blocks with copies of states, by group

    def __post_init__(self) -> None:
        groups = len(self.pool.layout.groups)
        self.tables = [np.empty(0, np.int32) for _ in range(groups)]
        self._first = [0] * groups

    def adopt(self, runs: Sequence[Sequence[int]], length: int, tail: Sequence[int] = ()) -> None:
        """Begin an empty sequence with full runs that are in the cache: [runs][groups] blocks.

        `tail`: blocks of the run after them, which is not full, and which the caller has taken.
        """
        self.length = length
        for group in range(len(self.tables)):
            first = self.pool.layout.groups[group].oldest_run(self.length)
            blocks = [run[group] for run in runs[first:]]
            for block in blocks:
                self.pool.share(group, block)
            blocks += tail[group : group + 1]
            self.tables[group] = np.array([0] * first + blocks, np.int32)
            self._first[group] = first

    def begin_at(self, length: int, first: Sequence[int]) -> None:
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
        """Make room for more tokens; CacheFullError without a change if there is none."""
        runs = -(-(self.length + tokens) // BLOCK_TOKENS)
        if runs == -(-self.length // BLOCK_TOKENS):
            self.length += tokens
            return
        fresh: list[list[int]] = [[] for _ in self.tables]
        try:
            for group, table in enumerate(self.tables):
                if self.pool.layout.groups[group].recurrent:
                    fresh[group] = self._take_states(group, range(len(table), runs))
                    continue
                for _ in range(len(table), runs):
                    fresh[group].append(self.pool.take(group))
        except CacheFullError:
            for group, blocks in enumerate(fresh):
                self._give_back(group, blocks)
            raise
        for group, blocks in enumerate(fresh):
            if blocks:
                added = np.array(blocks, np.int32)
                self.tables[group] = np.concatenate([self.tables[group], added])
        self.length += tokens

    def _take_states(self, group: int, runs: range) -> list[int]:
        """Take a block for the last of the new runs, and for those others whose state is kept."""
        if not runs:
            return []
        states = [NO_BLOCK] * (len(runs) - 1) + [self.pool.take(group)]
        for place, run in enumerate(runs[:-1]):
            if _keeps_state(run, runs[-1]) and self.pool.available(group):
                states[place] = self.pool.take(group)
        return states

    def _give_back(self, group: int, blocks: Sequence[int]) -> None:
        for block in blocks:
            if block != NO_BLOCK:
                self.pool.give_back(group, block)

    def keep_states(self) -> list[BlockCopy]:
        """Keep the states of this length until `drop_states`, so that `shrink` can come back to it.

        Returns the blocks to copy before the sequence runs. CacheFullError without a change if
        there is no room for them.
        """
        self.drop_states()
        copies: list[BlockCopy] = []
        last = self.length // BLOCK_TOKENS
        for group, spec in enumerate(self.pool.layout.groups):  # of which one has all the states
            # After a full run, the next tokens leave its state alone.
            if spec.recurrent and self.length % BLOCK_TOKENS:
                source = int(self.tables[group][last])
                copies.append(BlockCopy(group, source, self.pool.take(group)))
        self._kept_at, self._kept = self.length, {made.group: made.target for made in copies}
        return copies

    def drop_states(self) -> None:
        """Give back the copies of states."""
        for group, block in self._kept.items():
            self.pool.give_back(group, block)
        self._kept_at, self._kept = None, {}

    def can_shrink(self, length: int) -> bool:
        """Whether all that a token at position `length` sees is still held."""
        groups = self.pool.layout.groups
        return length == self.length or all(
            first <= group.oldest_run(length) and (not group.recurrent or length == self._kept_at)
            for group, first in zip(groups, self._first, strict=True)
        )

    def nearest(self, length: int) -> int:
        """The longest length up to this one that `shrink` can come back to, or the same."""
        recurrent = any(group.recurrent for group in self.pool.layout.groups)
        return length if not recurrent or self._kept_at is None else min(length, self._kept_at)

    def shrink(self, length: int) -> None:
        """Remove the last tokens; later ones are written in their place.

        Any length since the last `release_passed` is possible; see `can_shrink` for others.
        """
        runs = -(-length // BLOCK_TOKENS)
        for group, table in enumerate(self.tables):
            self._give_back(group, table[runs:].tolist())
            self.tables[group] = table[:runs]
            if length == self._kept_at and group in self._kept:
                self._give_back(group, [int(table[runs - 1])])
                self.tables[group][runs - 1] = self._kept.pop(group)
        self.length = length

    def release_passed(self) -> None:
        """Give back the blocks that left their sliding window."""
        for group, spec in enumerate(self.pool.layout.groups):
            first = self._first[group]
            self._first[group] = max(first, spec.oldest_run(self.length))
            self._give_back(group, self.tables[group][first : self._first[group]].tolist())

    @property
    def first_runs(self) -> tuple[int, ...]:
        """The first run of each group that was not given back."""
        return tuple(self._first)

    def run_blocks(self, run: int) -> list[int]:
        """A run's block in every group, `NO_BLOCK` if it was given back."""
        return [
            int(table[run]) if run >= first else NO_BLOCK
            for table, first in zip(self.tables, self._first, strict=True)
        ]

    def fork(self) -> tuple["SequenceBlocks", list[BlockCopy]]:
        """A sequence that continues from the same tokens, and the blocks to copy for it.

        Only the last block is copied, if it is not full. CacheFullError without a change if there
        is no room for the copy.
        """
        copy = SequenceBlocks(self.pool, expanded=self.expanded)
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
            for block in table[self._first[group] : full].tolist():
                if block != NO_BLOCK:
                    self.pool.share(group, block)
            entries = [targets.get((group, block), block) for block in table.tolist()]
            copy.tables[group] = np.array(entries, np.int32)
        copy._first = list(self._first)
        copy.length = self.length
        return copy, copies

    def close(self) -> None:
        """Give all blocks back; the last ones first, which others reuse least."""
        self.drop_states()
        for group, table in enumerate(self.tables):
            self._give_back(group, table[self._first[group] :][::-1].tolist())
        self.tables = [np.empty(0, np.int32) for _ in self.tables]
        self._first = [0] * len(self.tables)
        self.length = 0


def _keeps_state(run: int, last: int) -> bool:
    """Whether to keep the state at the end of a run: see `STATE_RUNS`.

    A text that continues differently begins at the state before the last run.
    """
    return (run + 1) % STATE_RUNS == 0 or run + 1 == last
