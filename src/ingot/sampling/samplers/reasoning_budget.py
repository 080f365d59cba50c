"""ReasoningBudget: ends the reasoning of a text after a number of tokens.

It follows the text by its bytes, because a tag may be one token or several. When the budget is
spent, it forces the tokens that close the reasoning, one after the other. If the model is writing
the closing tag itself, it may finish. As `ReplyParser` reads it, reasoning comes at the beginning
of a text or not at all: after it, or without it, the sampler does nothing.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Self

import numpy as np

from ingot.sampling.candidates import Candidates
from ingot.sampling.params import ThinkingBudget
from ingot.sampling.sampler import Sampler


class _Place(Enum):
    BEFORE = auto()  # reasoning may still begin
    INSIDE = auto()
    CLOSING = auto()  # the budget is spent
    AFTER = auto()


class ReasoningBudget(Sampler):
    """Bans all tokens except those that close the reasoning once the budget is spent."""

    cuts = False

    def __init__(self, budget: ThinkingBudget, token_bytes: Callable[[int], bytes]) -> None:
        self._budget, self._token_bytes = budget, token_bytes
        self.reset()

    def reset(self) -> None:
        self._place = _Place.BEFORE if self._budget.opens else _Place.INSIDE
        self._text = b""  # the beginning; inside, an end that may be part of the tag
        self._tokens = 0  # of the reasoning
        self._forced = 0

    def clone(self) -> Self:
        copy = type(self)(self._budget, self._token_bytes)
        copy._place, copy._text = self._place, self._text
        copy._tokens, copy._forced = self._tokens, self._forced
        return copy

    def apply(self, candidates: Candidates) -> None:
        if self._place is _Place.CLOSING:
            others = candidates.candidate_ids() != self._budget.forced[self._forced]
            candidates.logits[others] = -np.inf

    def accept(self, token: int) -> None:
        match self._place:
            case _Place.BEFORE:
                self._begin(self._token_bytes(token))
            case _Place.INSIDE:
                self._think(self._token_bytes(token))
            case _Place.CLOSING:
                self._forced += 1
                if self._forced == len(self._budget.forced):
                    self._place = _Place.AFTER

    def _begin(self, text: bytes) -> None:
        self._text = (self._text + text).lstrip()
        if self._text.startswith(self._budget.opens):
            self._place, self._text = _Place.INSIDE, b""
        elif not self._budget.opens.startswith(self._text):
            self._place = _Place.AFTER

    def _think(self, text: bytes) -> None:
        closes = self._budget.closes
        self._tokens += 1
        seen = self._text + text
        self._text = seen[-len(closes) :]
        if closes in seen:
            self._place = _Place.AFTER
        elif self._tokens >= self._budget.tokens and not _ends_in_part_of(closes, seen):
            self._place = _Place.CLOSING


def _ends_in_part_of(mark: bytes, text: bytes) -> bool:
    return any(text.endswith(mark[:size]) for size in range(1, len(mark)))
