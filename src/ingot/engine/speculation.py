"""Speculative decoding: guesses of the next tokens, which one step then verifies together.

The text never changes. A guess pays when the tokens it saves cost more than the columns it adds to
a step. How long it may be is learned from how many tokens of the last guesses were right: twice as
many after a guess that was right to its end, fewer after one that was not, and none for a while
after one of which nothing was right.

N-grams guess from the text itself, a draft model (smaller, with the same vocabulary) from what it
would write. Each text has its own sequence in the draft model.
"""

from typing import Protocol

import numpy as np

from ingot.arrays import Floats, Ints
from ingot.backends.batch import ExecutionPhase
from ingot.engine.model.loaded_model import LoadedModel
from ingot.errors import CacheFullError, ConfigError

_SHORTEST, _LONGEST = 2, 12  # tokens of a guess
_PAUSE = 8  # tokens without a guess after a wrong one, doubled each time up to the next number
_LONGEST_PAUSE = 512
_WORDS = (12, 8, 5, 3)  # tokens by which a place in the text is recognized
_SURE = 8  # words that leave little doubt: as many tokens are guessed, pause or not
_TOKENS_KEY = "tokenizer.ggml.tokens"


class Proposer(Protocol):
    """Guesses the next tokens of one text."""

    def propose(self, tokens: Ints, most: int) -> list[int]:
        """Up to `most` tokens that may follow these."""

    def learn(self, proposed: int, accepted: int) -> None:
        """Adapt to how many tokens of the last guess were right."""

    def close(self) -> None:
        """Free what it holds; the text has ended."""


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
        """Adapt to how many tokens of a guess, made at this length of the text, were right."""
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
    """Guesses that what followed the last tokens before follows them again.

    The longest n-gram that occurred before counts. Tokens are indexed once each, under the n-grams
    that end before them; a lookup is a few steps, however long the text is.
    """

    def __init__(self) -> None:
        self._pace = Pace()
        self._ends: dict[bytes, int] = {}  # the last position after each n-gram
        self._indexed = 0
        self._length = 0

    def propose(self, tokens: Ints, most: int) -> list[int]:
        """What followed the last tokens when they last occurred."""
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
        while guess and len(guess) < most:  # the text repeats itself
            guess += guess[: most - len(guess)]
        return guess

    def learn(self, proposed: int, accepted: int) -> None:
        """Guess more after a good guess, less after a bad one."""
        self._pace.learn(self._length, proposed, accepted)

    def close(self) -> None:
        """It holds nothing."""


class DraftProposer:
    """Guesses the likeliest tokens of a draft model, one after the other."""

    def __init__(self, draft: LoadedModel) -> None:
        self._draft = draft
        self._sequence = draft.sequence()
        self._seen: Ints = np.empty(0, np.int32)  # the tokens in the sequence
        self._pace = Pace()
        self._length = 0

    def propose(self, tokens: Ints, most: int) -> list[int]:
        """The likeliest tokens after these, by the draft model."""
        self._length = len(tokens)
        most = min(most, self._pace.most(len(tokens)), self._draft.context - len(tokens))
        if most < 1:
            return []
        try:
            return self._write(tokens, most)
        except CacheFullError:  # other texts fill the draft model's cache
            self._start_over()
            return []

    def learn(self, proposed: int, accepted: int) -> None:
        """Guess more after a good guess, less after a bad one."""
        self._pace.learn(self._length, proposed, accepted)

    def close(self) -> None:
        """Free its part of the draft model's cache."""
        self._start_over()

    def _write(self, tokens: Ints, most: int) -> list[int]:
        shared = min(len(self._seen), len(tokens) - 1)
        different = np.flatnonzero(self._seen[:shared] != tokens[:shared])
        if len(different):
            shared = int(different[0])
        if shared < len(self._seen):
            if self._sequence.can_shrink(shared):
                self._sequence.shrink(shared)
            else:
                self._start_over()
                shared = 0
        row = self._read(tokens[shared:])
        guess = [int(row.argmax())]
        while len(guess) < most:
            guess.append(int(self._read(np.array(guess[-1:], np.int32)).argmax()))
        self._seen = np.concatenate([tokens, np.array(guess[:-1], np.int32)])
        return guess

    def _read(self, tokens: Ints) -> Floats:
        """The logits after some more tokens."""
        size = self._draft.step_tokens
        phase = ExecutionPhase.GENERATION if len(tokens) == 1 else ExecutionPhase.PROMPT
        for start in range(0, len(tokens), size):
            chunk = tokens[start : start + size]
            last = np.array([len(chunk) - 1], np.int32)
            rows = self._draft.step([self._sequence], [chunk], last, phase)
        last_row: Floats = rows[0]
        return last_row

    def _start_over(self) -> None:
        self._sequence.close()
        self._seen = np.empty(0, np.int32)


def require_rewind(model: LoadedModel) -> None:
    """Refuse guesses of or for a model that cannot take tokens back."""
    if model.layout.recurrent:
        raise ConfigError(
            f"{model.file.path} is a recurrent model, whose state cannot be taken back after a "
            "wrong guess; leave speculation and draft out"
        )


def require_same_vocabulary(model: LoadedModel, draft: LoadedModel) -> None:
    """Refuse a draft model with other tokens."""
    own, other = (each.file.metadata.strings(_TOKENS_KEY) for each in (model, draft))
    if len(own) != len(other) or any(own.raw(i) != other.raw(i) for i in range(len(own))):
        raise ConfigError(
            f"{draft.file.path} has another vocabulary than {model.file.path}; a draft model "
            "must have the same"
        )
