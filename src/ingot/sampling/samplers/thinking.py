"""Thinking: ends the reasoning of a text when it has had its tokens.

It follows the text by its bytes, as marks may be one token or several. When the budget is spent,
the tokens that close the reasoning are the only ones left, one after the other; a mark that the
model is just writing itself it may finish. Reasoning comes at the beginning of a text or not at
all, as `ReplyParser` reads it: behind it, or without it, the sampler does nothing.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Self

import numpy as np

from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler
from ingot.sampling.thinking import ThinkingBudget


class _Place(Enum):
    """Where a text is."""

    BEFORE = auto()  # it may still begin to reason
    INSIDE = auto()
    CLOSING = auto()  # the budget is spent
    BEHIND = auto()


class Thinking(Sampler):
    """Bans all tokens but those that end the reasoning, when it is time."""

    cuts = False

    def __init__(self, budget: ThinkingBudget, token_bytes: Callable[[int], bytes]) -> None:
        self._budget, self._token_bytes = budget, token_bytes
        self.reset()

    def reset(self) -> None:
        """Begin again."""
        self._place = _Place.BEFORE if self._budget.opens else _Place.INSIDE
        self._text = b""  # of the beginning; inside, the end that may hold a part of the mark
        self._tokens = 0  # of the reasoning
        self._forced = 0

    def clone(self) -> Self:
        """Copy how far it is."""
        copy = type(self)(self._budget, self._token_bytes)
        copy._place, copy._text = self._place, self._text
        copy._tokens, copy._forced = self._tokens, self._forced
        return copy

    def apply(self, candidates: Candidates) -> None:
        """Ban."""
        if self._place is _Place.CLOSING:
            others = candidates.candidate_ids() != self._budget.forced[self._forced]
            candidates.logits[others] = -np.inf

    def accept(self, token: int) -> None:
        """Follow the text."""
        match self._place:
            case _Place.BEFORE:
                self._begin(self._token_bytes(token))
            case _Place.INSIDE:
                self._think(self._token_bytes(token))
            case _Place.CLOSING:
                self._forced += 1
                if self._forced == len(self._budget.forced):
                    self._place = _Place.BEHIND

    def _begin(self, text: bytes) -> None:
        self._text = (self._text + text).lstrip()
        if self._text.startswith(self._budget.opens):
            self._place, self._text = _Place.INSIDE, b""
        elif not self._budget.opens.startswith(self._text):
            self._place = _Place.BEHIND

    def _think(self, text: bytes) -> None:
        closes = self._budget.closes
        self._tokens += 1
        seen = self._text + text
        self._text = seen[-len(closes) :]
        if closes in seen:
            self._place = _Place.BEHIND
        elif self._tokens >= self._budget.tokens and not _ends_in_part_of(closes, seen):
            self._place = _Place.CLOSING


def _ends_in_part_of(mark: bytes, text: bytes) -> bool:
    return any(text.endswith(mark[:size]) for size in range(1, len(mark)))
