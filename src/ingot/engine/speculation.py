"""Guesses of the next tokens, which one step then verifies together; the text never changes.

A guess pays when the tokens it saves cost more than the columns it adds to a step. How long it
may be is learned from how many tokens of the last guesses were right: twice as many after a
guess that was right to its end, fewer after one that was not, and none for a while after one of
which nothing was right.
"""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]

_SHORTEST, _LONGEST = 2, 12  # tokens of a guess
_PAUSE = 8  # tokens without a guess after a wrong one, doubled each time up to the next number
_LONGEST_PAUSE = 512
_WORDS = (12, 8, 5, 3)  # tokens that a place in the text is known by
_SURE = 8  # words that leave little doubt: as many tokens are guessed, pause or not


class Pace:
    """How long the next guess may be."""

    def __init__(self) -> None:
        self._most = _SHORTEST
        self._pause = _PAUSE
        self._paused_until = 0  # length of the text

    def most(self, length: int) -> int:
        """Tokens to guess at a text of this length."""
        return self._most if length >= self._paused_until else 0

    def learn(self, length: int, proposed: int, accepted: int) -> None:
        """Hear how many of a guess were right, after which the text has this length."""
        if accepted == proposed:
            self._most = min(2 * self._most, _LONGEST)
            self._pause = _PAUSE
        elif accepted:
            self._most = max(_SHORTEST, min(self._most // 2, accepted + 1))
        else:
            self._most = _SHORTEST
            self._paused_until = length + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)


class NgramProposer:
    """Guesses that what followed the last words before follows them again.

    The longest run of last words that came before counts. Tokens are indexed once each, under
    the runs that end before them; a lookup is a few steps, however long the text is.
    """

    def __init__(self) -> None:
        self._pace = Pace()
        self._ends: dict[bytes, int] = {}  # the last place behind each run of tokens
        self._indexed = 0
        self._length = 0

    def propose(self, tokens: Ints, most: int) -> list[int]:
        """What followed the last words when they last came."""
        self._length = len(tokens)
        for end in range(self._indexed + 1, len(tokens)):
            for words in _WORDS:
                if end >= words:
                    self._ends[tokens[end - words : end].tobytes()] = end
        self._indexed = max(len(tokens) - 1, 0)
        for words in _WORDS:
            found = self._ends.get(tokens[len(tokens) - words :].tobytes())
            if len(tokens) > words and found is not None:
                paced = _SURE if words >= _SURE else self._pace.most(len(tokens))
                return self._follow(tokens, found, min(most, paced))
        return []

    def _follow(self, tokens: Ints, start: int, most: int) -> list[int]:
        guess: list[int] = tokens[start : start + most].tolist()
        while guess and len(guess) < most:  # the text runs into itself: it repeats
            guess += guess[: most - len(guess)]
        return guess

    def learn(self, proposed: int, accepted: int) -> None:
        """Guess more after a good guess, less after a bad one."""
        self._pace.learn(self._length, proposed, accepted)

    def close(self) -> None:
        """Nothing is held."""
