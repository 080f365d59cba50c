"""HeadProposer: guesses of a layer that continues hidden states of the model.

The layer is the model's own for multi-token prediction, or that of an EAGLE-3 draft. It needs the
model's hidden state of every token. They come in as the model computes them; most are read at once,
because those of a long prompt would take much memory. After a guess of its own it continues with
its own hidden state, which the cache forgets again.

Of tokens that the model found in its KV cache there are no hidden states. The layer's own cache has
what it read of them before. A few are mostly missing, those with which a text ended: they get
empty states. If more are missing, the layer does not see them.
"""

from contextlib import suppress

import numpy as np

from ingot.arrays import HiddenRows, Ints
from ingot.engine.model.draft_head import DraftHead
from ingot.engine.speculation.proposers import Proposer, Prospect
from ingot.errors import CacheFullError
from ingot.kvcache import CachedSequence

_WAITING = 16  # hidden states that may wait for the next guess
_FEW = 32  # tokens that get empty states
_PROSPECT = Prospect(0, 0.7)


class HeadProposer(Proposer):
    """Guesses the likeliest tokens of the layer, one after the other."""

    def __init__(self, head: DraftHead) -> None:
        self._head = head
        self._sequence: CachedSequence | None = None
        self._missing = 0  # positions of the text that the sequence has no place for
        self._next = 0  # position of the first hidden state that waits
        self._waiting: HiddenRows = head.empty(0)  # hidden states, in order
        self._tokens = np.empty(0, np.int32)  # of the text, when it last was seen

    def see(self, tokens: Ints, start: int, hidden: HiddenRows) -> None:
        """Keep hidden states; those of later tokens were of a guess, and do not count."""
        if start > self._next + len(self._waiting) or not self._follows(tokens):
            self._open(tokens, start)
        if start < self._next:  # the model ran them again
            start, hidden = self._next, hidden[self._next - start :]
        if len(hidden):
            self._waiting = self._head.joined([self._waiting[: start - self._next], hidden])
        self._tokens = tokens.copy()
        if len(self._waiting) > _WAITING:
            self._read()

    def prospect(self, tokens: Ints) -> Prospect | None:
        """All its guesses are of one sort, if it has seen the token before the last one."""
        return (
            _PROSPECT if self._next <= len(tokens) - 2 < self._next + len(self._waiting) else None
        )

    def propose(self, tokens: Ints, most: int) -> list[int]:
        """The likeliest tokens after these, by the layer."""
        if most < 1 or self._sequence is None or self.prospect(tokens) is None:
            return []
        self._tokens = tokens.copy()
        blocks, count = self._sequence.blocks, len(tokens) - 1 - self._next
        hidden = self._waiting[:count]
        try:
            guess = self._head.guess(blocks, tokens[self._next + 1 :], hidden, most)
        except CacheFullError:  # other texts fill the layer's cache
            self._drop()
            return []
        blocks.shrink(self._next + count - self._missing)
        self._advance(count)
        return guess

    def close(self) -> None:
        """Read what waits, so that a text that continues this one finds it; free the sequence."""
        with suppress(Exception):  # the text has ended, whatever is wrong with the layer
            self._read()
        self._drop()

    def _follows(self, tokens: Ints) -> bool:
        """Whether what was read is of these tokens."""
        read = slice(self._next + 1)
        return self._sequence is not None and np.array_equal(tokens[read], self._tokens[read])

    def _open(self, tokens: Ints, start: int) -> None:
        """Begin at a position, after what the layer's cache has of the tokens before it.

        A place of the sequence depends on the tokens up to the one after its own.
        """
        self._drop()
        self._sequence = self._head.open(tokens[1 : start + 2], variant=int(tokens[0]))
        found = self._sequence.length
        if 0 < start - found <= _FEW:
            known = tokens[found + 1 : start + 1]  # the last one may still be sampled
            with suppress(CacheFullError):
                self._head.read(self._sequence.blocks, known, self._head.empty(len(known)))
        self._missing = start - self._sequence.length
        self._next = start

    def _read(self) -> None:
        """Run the hidden states that wait, as far as the tokens after them are known."""
        count = min(len(self._waiting), len(self._tokens) - 1 - self._next)
        if count < 1 or self._sequence is None:
            return
        ids = self._tokens[self._next + 1 : self._next + 1 + count]
        try:
            self._head.read(self._sequence.blocks, ids, self._waiting[:count])
        except CacheFullError:
            self._drop()
        else:
            self._advance(count)

    def _advance(self, count: int) -> None:
        """The first of the waiting hidden states have run."""
        assert self._sequence is not None, "it runs"
        self._next += count
        self._waiting = self._head.joined([self._waiting[count:]])
        if not self._missing:
            self._head.cache.settle(self._sequence, self._tokens[1:], 0)

    def _drop(self) -> None:
        if self._sequence is not None:
            filed = None if self._missing else self._tokens[1:]
            self._head.cache.close(self._sequence, filed)
        self._sequence, self._missing, self._next = None, 0, 0
        self._waiting = self._head.empty(0)
