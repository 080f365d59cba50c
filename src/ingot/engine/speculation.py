"""Guesses of the next tokens, which one step then verifies together; the text never changes.

A guess pays when the tokens it saves cost more than the columns it adds to a step. How long it
may be is learned from how many tokens of the last guesses were right: twice as many after a
guess that was right to its end, half as many after one that was not, none for a while after
several wrong ones in a row.
"""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]

_SHORTEST, _LONGEST = 2, 12  # tokens of a guess
_PATIENCE = 3  # wrong guesses in a row before a pause
_PAUSE = 16  # tokens without a guess then, doubled each time up to the next number
_LONGEST_PAUSE = 512


class Pace:
    """How long the next guess may be."""

    def __init__(self) -> None:
        self._most = _SHORTEST
        self._wrong = 0
        self._pause = _PAUSE
        self._paused_until = 0  # length of the text

    def most(self, length: int) -> int:
        """Tokens to guess at a text of this length."""
        return self._most if length >= self._paused_until else 0

    def learn(self, length: int, proposed: int, accepted: int) -> None:
        """Hear how many of a guess were right, after which the text has this length."""
        if accepted == proposed:
            self._most = min(2 * self._most, _LONGEST)
            self._wrong = 0
            self._pause = _PAUSE
        else:
            self._most = max(_SHORTEST, min(self._most // 2, accepted + 1))
            self._wrong = 0 if accepted else self._wrong + 1
        if self._wrong >= _PATIENCE:
            self._wrong = 0
            self._paused_until = length + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)


class NgramProposer:
    """Guesses that what followed the last words before follows them again.

    Tokens are indexed once each, by the `_WORDS` tokens up to them; a lookup is one step.
    """

    _WORDS = 3

    def __init__(self) -> None:
        self._pace = Pace()
        self._ends: dict[bytes, int] = {}  # the last place behind each run of _WORDS tokens
        self._indexed = 0
        self._length = 0

    def propose(self, tokens: Ints, most: int) -> list[int]:
        """What followed the last words when they last came."""
        self._length = len(tokens)
        words = self._WORDS
        for end in range(max(self._indexed + 1, words), len(tokens)):
            self._ends[tokens[end - words : end].tobytes()] = end
        self._indexed = max(len(tokens) - 1, 0)
        most = min(most, self._pace.most(len(tokens)))
        if most < 1 or len(tokens) < words:
            return []
        found = self._ends.get(tokens[len(tokens) - words :].tobytes())
        if found is None:
            return []
        guess: list[int] = tokens[found : found + most].tolist()
        while guess and len(guess) < most:  # the text runs into itself: it repeats
            guess += guess[: most - len(guess)]
        return guess

    def learn(self, proposed: int, accepted: int) -> None:
        """Guess more after a good guess, less after a bad one."""
        self._pace.learn(self._length, proposed, accepted)

    def close(self) -> None:
        """Nothing is held."""
