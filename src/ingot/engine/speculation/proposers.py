"""Proposers: what the next tokens of a text may be.

The tokens of a text come in, a guess goes out. How long it may be is for others to decide
(guesser.py, auto.py). N-grams guess from the text itself; draft_model.py asks a smaller model, and
head_proposer.py a layer that continues the model's hidden states.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from ingot.arrays import Floats, Ints

LONGEST = 12  # tokens of a guess
_COPIED = 8  # tokens that a place in the text must share with the end to be copied
_CHANCES = {12: 0.9, 8: 0.9, 5: 0.6, 3: 0.4}  # by the tokens that a place in the text must share


class Prospect(NamedTuple):
    """What sort of guess can be made now."""

    sort: int  # guesses of one sort are about equally often right
    chance: float  # of a token to be right, before any guess of this sort was seen
    is_free: bool = False  # it costs next to nothing, so that some are made to be compared


class Proposer(ABC):
    """Guesses the next tokens of one text."""

    @property
    def has_begun(self) -> bool:
        """Whether it has read the text up to its last guess; the first guess may take longer."""
        return True

    @abstractmethod
    def prospect(self, tokens: Ints) -> Prospect | None:
        """What sort of guess can be made after these tokens; None: none at all."""

    @abstractmethod
    def propose(self, tokens: Ints, most: int) -> list[int]:
        """Up to `most` tokens that may follow these."""

    def see(self, tokens: Ints, start: int, hidden: Floats) -> None:  # noqa: ARG002 (HeadProposer)
        """The model ran tokens of the text from `start` on; these are their hidden states.

        The last of them may be of a guess, which `tokens` does not have.
        """
        return

    def close(self) -> None:
        """Free what it holds; the text has ended."""
        return


class NgramProposer(Proposer):
    """Guesses that what followed the last tokens before follows them again.

    Of the places in the text that share the most of the last tokens, the newest counts.
    """

    def prospect(self, tokens: Ints) -> Prospect | None:
        """How many of the last tokens occurred before."""
        shared, _ = _find(tokens)
        sort = next((words for words in _CHANCES if shared >= words), None)
        return None if sort is None else Prospect(sort, _CHANCES[sort], is_free=True)

    def propose(self, tokens: Ints, most: int) -> list[int]:
        """What followed the last tokens when they last occurred."""
        shared, start = _find(tokens)
        if shared < min(_CHANCES):
            return []
        guess: list[int] = tokens[start : start + most].tolist()
        while guess and len(guess) < most:  # the text repeats itself
            guess += guess[: most - len(guess)]
        return guess


class CopyingProposer(Proposer):
    """Guesses with n-grams where the text copies itself, and with another proposer elsewhere."""

    def __init__(self, other: Proposer) -> None:
        self._other = other
        self._ngrams = NgramProposer()
        self._chosen: Proposer = other

    @property
    def has_begun(self) -> bool:
        """That of the one that guesses now."""
        return self._chosen.has_begun

    def prospect(self, tokens: Ints) -> Prospect | None:
        """Choose who guesses now."""
        found = self._ngrams.prospect(tokens)
        self._chosen = self._ngrams if found and found.sort >= _COPIED else self._other
        return found if self._chosen is self._ngrams else self._other.prospect(tokens)

    def propose(self, tokens: Ints, most: int) -> list[int]:
        """The guess of the one that was chosen."""
        return self._chosen.propose(tokens, most)

    def see(self, tokens: Ints, start: int, hidden: Floats) -> None:
        """The other one may need the hidden states."""
        self._other.see(tokens, start, hidden)

    def close(self) -> None:
        """Free what the other one holds."""
        self._other.close()


class NoProposer(Proposer):
    """Never guesses: for a text that others beside it may slow down."""

    def prospect(self, tokens: Ints) -> None:
        """There is none."""

    def propose(self, tokens: Ints, most: int) -> list[int]:  # noqa: ARG002 (see Proposer)
        """Nothing."""
        return []


def _find(tokens: Ints) -> tuple[int, int]:
    """How many of the last tokens occurred together before, and the position after them."""
    shared, start = 0, 0
    ends = np.flatnonzero(tokens[:-1] == tokens[-1:])  # places of the last token
    while len(ends):
        shared, start = shared + 1, int(ends[-1]) + 1
        if shared == max(_CHANCES):
            break
        ends = ends[ends >= shared]
        ends = ends[tokens[ends - shared] == tokens[len(tokens) - 1 - shared]]
    return shared, start
