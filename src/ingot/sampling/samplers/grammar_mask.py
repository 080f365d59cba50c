"""GrammarMask: bans every token that the grammar does not allow next."""

from typing import Self

import numpy as np

from ingot import _native
from ingot.sampling.candidates import Candidates
from ingot.sampling.grammar.state import GrammarState
from ingot.sampling.sampler import Sampler


class GrammarMask(Sampler):
    """Applies the token masks of a grammar and follows the text through it."""

    cuts = False

    def __init__(self, state: GrammarState) -> None:
        self._state = state

    def prepare(self) -> None:
        self._state.prepare()

    def forced_tokens(self) -> list[int]:
        return self._state.forced()

    @property
    def is_complete(self) -> bool:
        return self._state.is_complete

    def apply(self, candidates: Candidates) -> None:
        words = self._state.mask()
        if candidates.ids is None:
            _native.mask_row(candidates.row, words)
            return
        bits = words[candidates.ids >> 5] >> (candidates.ids & 31).astype(np.uint32) & 1
        candidates.logits[bits == 0] = -np.inf

    def accept(self, token: int) -> None:
        self._state.accept(token)

    def reset(self) -> None:
        self._state.reset()

    def clone(self) -> Self:
        return type(self)(self._state.clone())
