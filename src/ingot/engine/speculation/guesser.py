"""Guesser: when a text makes a guess, and how long it is.

PacedGuesser learns from the last guesses how long the next may be: twice as many tokens after a
guess that was right to its end, fewer after one that was not, and none for a while after one of
which nothing was right. AutoGuesser (auto.py) also knows what a guess costs.
"""

from typing import Protocol

from ingot.arrays import Floats, Ints
from ingot.engine.speculation.proposers import LONGEST, Proposer

_SHORTEST = 2  # tokens of a guess
_PAUSE = 8  # tokens without a guess after a wrong one, doubled each time up to the next number
_LONGEST_PAUSE = 512
_SURE, _SURE_TOKENS = 0.9, 8  # a chance that leaves little doubt: a guess is made, pause or not


class Guesser(Protocol):
    """Decides about the guesses of one text."""

    @property
    def rests(self) -> bool:
        """Whether no guess is wanted after the next token, so that nobody has to wait for it."""

    def guess(self, tokens: Ints, most: int) -> list[int]:
        """Up to `most` tokens that may follow these. It is called after every step of the text."""

    def learn(self, proposed: int, accepted: int) -> None:
        """Adapt to how many tokens of the last guess were right."""

    def see(self, tokens: Ints, start: int, hidden: Floats) -> None:
        """The model ran tokens of the text from `start` on; these are their hidden states.

        The last of them may be of a guess, which `tokens` does not have.
        """

    def close(self) -> None:
        """Free what it holds; the text has ended."""


class PacedGuesser:
    """Guesses whenever the last guesses were right, whatever it costs."""

    rests = False

    def __init__(self, proposer: Proposer) -> None:
        self._proposer = proposer
        self._most = _SHORTEST
        self._pause = _PAUSE
        self._paused_until = 0  # length of the text
        self._length = 0

    def guess(self, tokens: Ints, most: int) -> list[int]:
        """What the proposer says, as far as its last guesses deserve it."""
        self._length = len(tokens)
        prospect = self._proposer.prospect(tokens)
        if prospect is None:
            return []
        if prospect.chance >= _SURE:
            most = min(most, _SURE_TOKENS)
        else:
            most = min(most, self._most) if self._length >= self._paused_until else 0
        return self._proposer.propose(tokens, most) if most > 0 else []

    def learn(self, proposed: int, accepted: int) -> None:
        """Guess more after a good guess, less after a bad one."""
        if accepted == proposed:
            self._most = min(2 * self._most, LONGEST)
            self._pause = _PAUSE
        elif accepted:
            self._most = max(_SHORTEST, min(self._most // 2, accepted + 1))
        else:
            self._most = _SHORTEST
            self._paused_until = self._length + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def see(self, tokens: Ints, start: int, hidden: Floats) -> None:
        """The proposer may need the hidden states."""
        self._proposer.see(tokens, start, hidden)

    def close(self) -> None:
        """Free what the proposer holds."""
        self._proposer.close()
