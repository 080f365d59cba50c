"""TokenSequence: tokens in order, and how many of them the model has run.

The first `prompted` tokens run as a prompt, the others as generated ones, whenever they run and
however often: a sequence that lost its place in the KV cache is computed again to the same bits.
"""

from collections.abc import Iterable

import numpy as np

from ingot.arrays import Ints
from ingot.backends.batch import ExecutionPhase
from ingot.errors import CacheFullError
from ingot.kvcache import BlockCopy, CachedSequence, KvCache, SequenceBlocks


class TokenSequence:
    """Tokens, and their place in the KV cache while the scheduler gives them one."""

    def __init__(
        self,
        tokens: Ints,
        prompted: int | None = None,
        *,
        rows_from: int | None = None,
        reuse: bool = True,
    ) -> None:
        """Ask for the logits of the tokens from position `rows_from` on, by default of the last.

        `reuse`: whether it begins with what the cache holds of it.
        """
        self.reuse = reuse
        self.cached: CachedSequence | None = None
        self._cache: KvCache | None = None
        self._begun = False  # it had a place in the cache before
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
        return self.cached.length if self.cached else 0

    @property
    def blocks(self) -> SequenceBlocks:
        """Its blocks of the cache."""
        assert self.cached is not None, "it runs"
        return self.cached.blocks

    @property
    def pending(self) -> int:
        """How many tokens must run before the next can be sampled."""
        return self._count - self.computed

    @property
    def phase(self) -> ExecutionPhase:
        """The phase of the next tokens to run."""
        prompt = self.computed < self.prompted
        return ExecutionPhase.PROMPT if prompt else ExecutionPhase.GENERATION

    @property
    def runnable(self) -> int:
        """How many of the pending tokens are of that phase."""
        computed = self.computed
        return (self.prompted if computed < self.prompted else self._count) - computed

    def extend(self, tokens: Iterable[int], *, rows: int = 1) -> None:
        """Add tokens and ask for the logits of the last `rows`."""
        for token in tokens:
            self.append(token)
        self.rows_from = self._count - rows

    def append(self, token: int) -> None:
        """Add a token and ask for its logits."""
        if self._count == len(self._tokens):
            self._tokens = np.resize(self._tokens, 2 * self._count + 64)
        self._tokens[self._count] = token
        self.rows_from = self._count
        self._count += 1

    def cut(self, count: int) -> None:
        """Keep the first `count` tokens; the cache may have more of them until `rewind`."""
        self._count = count

    def rewind(self, computed: int) -> None:
        """Keep at most `computed` tokens in the cache."""
        if self.cached and self.cached.length > computed:
            self.cached.blocks.shrink(computed)

    def grow_ahead(self) -> None:
        """Make room for a token that is not known yet; CacheFullError if there is none."""
        self.blocks.grow(1)
        assert self.cached is not None, "it runs"
        self.cached.ahead += 1

    def shrink_ahead(self) -> None:
        """Undo `grow_ahead`, before a step has begun."""
        assert self.cached is not None, "it runs"
        self.cached.ahead -= 1
        self.blocks.shrink(self.blocks.length - 1)

    def catch_up(self) -> None:
        """Count the token of a step that ran ahead as computed, if the sequence still runs."""
        if self.cached:
            self.cached.ahead -= 1

    def replace(self, tokens: Ints) -> None:
        """Become another text, all of which is read as a prompt."""
        self.close()
        self._begun = False
        self._set(tokens, None, None)

    def open(self, cache: KvCache) -> None:
        """Take a place in the cache, with what it holds of the tokens."""
        self._cache = cache
        # A token whose logits are wanted must run.
        known = self.tokens[: self.rows_from + 1 if self.reuse else 0]
        self.cached = cache.open(known, self.prompted, again=self._begun)
        self._begun = True

    def settle(self) -> None:
        """Let others find what is computed; give back blocks that left a sliding window."""
        if self.cached and self._cache:
            self._cache.settle(self.cached, self.tokens, self.prompted)

    def fork(self) -> tuple["TokenSequence", list[BlockCopy]]:
        """A sequence that continues from the same tokens, and the blocks to copy for it.

        If there is no room for it, its tokens run again when there is.
        """
        copy = TokenSequence(self.tokens, self.prompted, rows_from=self.rows_from, reuse=self.reuse)
        copy._begun = self._begun
        if self.cached is None or self._cache is None:
            return copy, []
        try:
            cached, copies = self._cache.fork(self.cached)
        except CacheFullError:
            return copy, []
        copy._cache, copy.cached = self._cache, cached
        return copy, copies

    def share(self, other: "TokenSequence") -> list[BlockCopy]:
        """Take over what another sequence with the same first tokens has computed.

        Returns the blocks to copy.
        """
        if other.cached is None or other._cache is None or other.computed >= len(self):
            return []
        forked, copies = other.fork()
        self._cache, self.cached, self._begun = forked._cache, forked.cached, True
        return copies

    def close(self) -> None:
        """Leave the cache; the tokens stay."""
        if self.cached and self._cache:
            self._cache.close(self.cached)
            self.cached = None
