"""TokenSequence: tokens in order, and how many of them the model has run.

The first `prompted` tokens run as a prompt, the others as generated ones, whenever they run and
however often: a sequence that lost its place in the KV cache is computed again to the same bits.
If an encoder reads the prompt, all of it runs in one step, and what the cache holds of it is of no
use to other prompts.

Later prompts of a conversation begin with the first `shared` tokens of this one. What comes after
them, an answer and its reasoning, is not always in the history.

Latents are expanded for a prompt of which many tokens must run, whoever shares its steps. A few do
not pay for it: those before them would be expanded too.
"""

from collections.abc import Hashable, Iterable

import numpy as np

from ingot.arrays import Ints
from ingot.backends.batch import ExecutionPhase
from ingot.engine.adapters import AdapterUse
from ingot.errors import CacheFullError
from ingot.graph.kv_layout import BLOCK_TOKENS
from ingot.kvcache import BlockCopy, CachedSequence, KvCache, Reuse, SequenceBlocks

_EXPANDED = 192  # tokens of a prompt that pay for the expansion of those before them

_REASONING = 8  # tokens: room for a tag that begins reasoning, or for empty reasoning in its tags


class TokenSequence:
    """Tokens, and their place in the KV cache while the scheduler gives them one."""

    def __init__(
        self,
        tokens: Ints,
        prompted: int | None = None,
        *,
        rows_from: int | None = None,
        reuse: bool = True,
        adapter: AdapterUse | None = None,
        encoded: bool = False,
    ) -> None:
        """Ask for the logits of the tokens from position `rows_from` on, by default of the last.

        `reuse`: whether it begins with what the cache holds of it. `adapter` runs with all tokens.
        `encoded`: an encoder reads the prompt.
        """
        self.reuse = reuse
        self.adapter = adapter
        self.encoded = encoded
        self.cached: CachedSequence | None = None
        self.copies: list[BlockCopy] = []  # to be made before the next tokens run
        self._cache: KvCache | None = None
        self._begun = False  # it had a place in the cache before
        self._expanded = False
        self._set(tokens, prompted, rows_from)

    def _set(self, tokens: Ints, prompted: int | None, rows_from: int | None) -> None:
        self._tokens = np.array(tokens, np.int32)
        self._count = len(tokens)
        self.first_run = self._tokens[:BLOCK_TOKENS].tobytes()
        self.prompted = self._count if prompted is None else prompted
        self.shared = self.prompted
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
    def variant(self) -> Hashable:
        """What its keys and values depend on, besides the tokens before."""
        key = self.adapter.key if self.adapter else ()
        return (key, encoded_variant(self.tokens[: self.prompted])) if self.encoded else key

    @property
    def pending(self) -> int:
        """How many tokens must run before the next can be sampled."""
        cached = self.cached
        return self._count - (cached.blocks.length - cached.ahead if cached else 0)

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
        self._distrust(count)

    def guess(self, tokens: list[int]) -> bool:
        """Add tokens that may be taken back, and ask for their logits and those of the one before.

        False: the cache has no room to come back.
        """
        if self.cached:
            try:
                self.copies = self.cached.blocks.keep_states()
            except CacheFullError:
                return False
        self.extend(tokens, rows=1 + len(tokens))
        return True

    def rewind(self, computed: int) -> None:
        """Keep at most `computed` tokens in the cache; of recurrent models perhaps fewer.

        What is missing runs again with the next tokens.
        """
        if self.cached and self.cached.length > computed:
            nearest = self.cached.blocks.nearest(computed)
            self._distrust(nearest)
            if self.cached.blocks.can_shrink(nearest):
                self.cached.blocks.shrink(nearest)
            else:
                self.close()
        if self.cached:
            self.cached.blocks.drop_states()

    def _distrust(self, first: int) -> None:
        """From here on, what is in the cache may be of other tokens than the text has."""
        if self.cached:
            self.cached.settled = min(self.cached.settled, first)

    def grow_ahead(self) -> None:
        """Make room for a token that is not known yet; CacheFullError if there is none."""
        self.blocks.grow(1)
        assert self.cached is not None, "it runs"
        self.cached.ahead += 1

    @property
    def is_ahead(self) -> bool:
        """Whether a step runs with a token that is not known yet."""
        return self.cached is not None and self.cached.ahead > 0

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

    def open(self, cache: KvCache) -> list[BlockCopy]:
        """Take a place in the cache, with what it holds of the tokens.

        Returns the blocks to copy before the sequence runs.
        """
        self._cache = cache
        # A token whose logits are wanted must run.
        known = self.tokens[: self.rows_from + 1 if self.reuse else 0]
        self.cached = cache.open(known, self.prompted, again=self._begun, variant=self.variant)
        copies = cache.reuse_part(self.cached, known, self.prompted, again=self._begun)
        if self.encoded and self.cached.length < self.prompted:  # an encoder reads a prompt whole
            cache.close(self.cached)
            self.cached, copies = cache.open(known[:0], self.prompted, variant=self.variant), []
        if not self._begun:
            many = self.prompted - self.computed >= _EXPANDED
            self._expanded = many and cache.reuse is Reuse.ALL  # the others promise equal bits
        self.cached.blocks.expanded = self._expanded
        self._begun = True
        return copies

    def settle(self) -> None:
        """Let others find what is computed; give back blocks that left a sliding window."""
        if self.cached and self._cache:
            self._cache.settle(self.cached, self.tokens, self.prompted)

    def keep_states(self) -> list[BlockCopy]:
        """Keep the states after `shared` tokens, which are all that ran.

        Returns the blocks to copy before the next tokens run.
        """
        assert self.cached is not None, "it runs"
        assert self._cache is not None, "it runs"
        return self._cache.keep_end(self.cached, self.tokens[: self.shared])

    def fork(self) -> tuple["TokenSequence", list[BlockCopy]]:
        """A sequence that continues from the same tokens, and the blocks to copy for it.

        If there is no room for it, its tokens run again when there is.
        """
        copy = TokenSequence(
            self.tokens,
            self.prompted,
            rows_from=self.rows_from,
            reuse=self.reuse,
            adapter=self.adapter,
            encoded=self.encoded,
        )
        copy._begun, copy._expanded, copy.shared = self._begun, self._expanded, self.shared
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
        self._expanded = forked._expanded
        return copies

    def close(self) -> None:
        """Leave the cache; the tokens stay."""
        if self.cached and self._cache:
            self._cache.close(self.cached, self.tokens, self.prompted)
            self.cached = None
            self.copies = []


def begin_text(
    prompt: Ints,
    start_token: int | None,
    *,
    reuse: bool = True,
    adapter: AdapterUse | None = None,
    reasoning: frozenset[int] = frozenset(),
) -> TokenSequence:
    """A sequence for a text after a prompt.

    With a `start_token`, an encoder reads the prompt, and that token is what is decoded first.
    `reasoning`: tokens that begin reasoning; at the end of a prompt, the history lacks them.
    """
    if start_token is None:
        sequence = TokenSequence(prompt, reuse=reuse, adapter=adapter)
        sequence.shared = _before_reasoning(prompt, reasoning)
        return sequence
    sequence = TokenSequence(prompt, reuse=reuse, adapter=adapter, encoded=True)
    sequence.append(start_token)
    return sequence


def _before_reasoning(prompt: Ints, reasoning: frozenset[int]) -> int:
    """How many tokens come before the reasoning that a prompt begins, or begins and ends."""
    end = len(prompt)
    for at in range(end - 1, max(end - _REASONING, 0), -1):
        if int(prompt[at]) in reasoning:
            return at
    return end


def encoded_variant(prompt: Ints) -> bytes:
    """What the cache of a prompt that an encoder read depends on: all of it."""
    return prompt.tobytes()
