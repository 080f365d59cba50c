"""Grammar: bans every token that the grammar does not allow here."""

from typing import Self

import numpy as np

from ingot import _native
from ingot.sampling.candidates import Candidates
from ingot.sampling.grammar.state import GrammarState
from ingot.sampling.sampler import Sampler


class GrammarMask(Sampler):
    """Bans tokens, follows the text, and knows when it is complete."""

    cuts = False

    def __init__(self, state: GrammarState) -> None:
        self._state = state

    def prepare(self) -> None:
        """Compute the mask of the next token ahead of `apply`, in any thread."""
        self._state.prepare()

    def forced_tokens(self) -> list[int]:
        """The tokens that must come next."""
        return self._state.forced()

    @property
    def is_complete(self) -> bool:
        """Whether nothing more may come."""
        return self._state.is_complete

    def apply(self, candidates: Candidates) -> None:
        """Ban."""
        words = self._state.mask()
        if candidates.ids is None:
            _native.mask_row(candidates.row, words)
            return
        bits = words[candidates.ids >> 5] >> (candidates.ids & 31).astype(np.uint32) & 1
        candidates.logits[bits == 0] = -np.inf

    def accept(self, token: int) -> None:
        """Go on."""
        self._state.accept(token)

    def reset(self) -> None:
        """Go back to the start."""
        self._state.reset()

    def clone(self) -> Self:
        """Copy the place in the grammar."""
        return type(self)(self._state.clone())
