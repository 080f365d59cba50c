"""Strand: one text of a task, its tokens, and how many of them the model has seen.

The first `prompted` tokens run as a prompt, the others as generated ones, whenever they run and
however often: a strand that lost its place in the cache is computed again to the same bits.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ingot.backends.batch import ExecutionPhase
from ingot.errors import CacheFullError
from ingot.kvcache import BlockCopy, CachedSequence, KvCache, Sequence

Ints = NDArray[np.int32]


class Strand:
    """Tokens, and a sequence in the cache while the scheduler gives it one."""

    def __init__(
        self,
        tokens: Ints,
        prompted: int | None = None,
        *,
        rows_from: int | None = None,
        reuse: bool = True,
    ) -> None:
        """Logits are wanted of the tokens from position `rows_from` on, else of the last.

        `reuse`: whether it begins with what the cache has of it.
        """
        self.reuse = reuse
        self.sequence: CachedSequence | None = None
        self._cache: KvCache | None = None
        self._begun = False  # it had a sequence before
        self._set(tokens, prompted, rows_from)

    def _set(self, tokens: Ints, prompted: int | None, rows_from: int | None) -> None:
        self._tokens = np.array(tokens, np.int32)
        self._count = len(tokens)
        self.prompted = self._count if prompted is None else prompted
        self.rows_from = self._count - 1 if rows_from is None else rows_from

    def __len__(self) -> int:
        return self._count

    @property
    def tokens(self) -> Ints:
        """All tokens so far."""
        return self._tokens[: self._count]

    @property
    def computed(self) -> int:
        """How many of the tokens are in the cache."""
        return self.sequence.length if self.sequence else 0

    @property
    def blocks(self) -> Sequence:
        """Its blocks of the cache."""
        assert self.sequence is not None, "it runs"
        return self.sequence.blocks

    @property
    def pending(self) -> int:
        """How many are to be run before the next can be chosen."""
        return self._count - self.computed

    @property
    def phase(self) -> ExecutionPhase:
        """What the next tokens to run are."""
        prompt = self.computed < self.prompted
        return ExecutionPhase.PROMPT if prompt else ExecutionPhase.GENERATION

    @property
    def runnable(self) -> int:
        """How many of the pending tokens are of that phase."""
        computed = self.computed
        return (self.prompted if computed < self.prompted else self._count) - computed

    def extend(self, tokens: Iterable[int], *, rows: int = 1) -> None:
        """Add tokens; logits are wanted of the last `rows` of all."""
        added = np.fromiter(tokens, np.int32)
        needed = self._count + len(added)
        if needed > len(self._tokens):
            grown = np.empty(max(needed, 2 * len(self._tokens)), np.int32)
            grown[: self._count] = self.tokens
            self._tokens = grown
        self._tokens[self._count : needed] = added
        self._count = needed
        self.rows_from = needed - rows

    def cut(self, count: int) -> None:
        """Keep the first `count` tokens; the cache may be ahead of them until `rewind`."""
        self._count = count

    def rewind(self, computed: int) -> None:
        """Take back what the cache has beyond so many tokens."""
        if self.sequence and self.sequence.length > computed:
            self.sequence.blocks.shrink(computed)

    def reach_ahead(self) -> None:
        """Make room for a token that is not known yet; CacheFullError if there is none."""
        self.blocks.grow(1)
        assert self.sequence is not None, "it runs"
        self.sequence.ahead += 1

    def draw_back(self) -> None:
        """Take that back: no step has begun."""
        assert self.sequence is not None, "it runs"
        self.sequence.ahead -= 1
        self.blocks.shrink(self.blocks.length - 1)

    def catch_up(self) -> None:
        """The step that ran ahead has run, if the strand still runs."""
        if self.sequence:
            self.sequence.ahead -= 1

    def replace(self, tokens: Ints) -> None:
        """Become another text, all of which is read as a prompt."""
        self.close()
        self._begun = False
        self._set(tokens, None, None)

    def open(self, cache: KvCache) -> None:
        """Take a sequence, with what the cache has of the tokens."""
        self._cache = cache
        # A token whose logits are wanted must run.
        known = self.tokens[: self.rows_from + 1 if self.reuse else 0]
        self.sequence = cache.open(known, self.prompted, again=self._begun)
        self._begun = True

    def settle(self) -> None:
        """Let others find what is computed, give back what is passed."""
        if self.sequence and self._cache:
            self._cache.settle(self.sequence, self.tokens, self.prompted)

    def fork(self) -> tuple["Strand", list[BlockCopy]]:
        """A strand that goes on from the same tokens, and the blocks to copy for it.

        Where there is no room for it, its tokens run again when there is.
        """
        copy = Strand(self.tokens, self.prompted, rows_from=self.rows_from, reuse=self.reuse)
        copy._begun = self._begun
        if self.sequence is None or self._cache is None:
            return copy, []
        try:
            sequence, copies = self._cache.fork(self.sequence)
        except CacheFullError:
            return copy, []
        copy._cache, copy.sequence = self._cache, sequence
        return copy, copies

    def share(self, other: "Strand") -> list[BlockCopy]:
        """Begin with what another has computed, whose tokens these begin with; blocks to copy."""
        if other.sequence is None or other._cache is None or other.computed >= len(self):
            return []
        forked, copies = other.fork()
        self._cache, self.sequence, self._begun = forked._cache, forked.sequence, True
        return copies

    def close(self) -> None:
        """Leave the cache; the tokens stay."""
        if self.sequence and self._cache:
            self._cache.close(self.sequence)
            self.sequence = None
