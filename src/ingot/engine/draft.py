"""Guesses of a second, smaller model with the same vocabulary.

Each text has a sequence of its own in that model. The likeliest tokens are guessed, one
after the other, and verified by the first model in one step (see speculation.py).
"""

import numpy as np
from numpy.typing import NDArray

from ingot.backends.batch import ExecutionPhase
from ingot.engine.loaded import LoadedModel
from ingot.engine.speculation import Pace
from ingot.errors import CacheFullError, ConfigError

Ints = NDArray[np.int32]
_TOKENS_KEY = "tokenizer.ggml.tokens"


def check_draft(model: LoadedModel, draft: LoadedModel) -> None:
    """Refuse a draft model that does not speak the same tokens."""
    own, other = (each.file.metadata.strings(_TOKENS_KEY) for each in (model, draft))
    if len(own) != len(other) or any(own.raw(i) != other.raw(i) for i in range(len(own))):
        raise ConfigError(
            f"{draft.file.path} has another vocabulary than {model.file.path}; a draft model "
            "must have the same"
        )


class DraftProposer:
    """Guesses for one text."""

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
        except CacheFullError:  # other texts have the draft model's cache
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

    def _read(self, tokens: Ints) -> NDArray[np.float32]:
        """The logits after some more tokens."""
        size = self._draft.step_tokens
        phase = ExecutionPhase.GENERATION if len(tokens) == 1 else ExecutionPhase.PROMPT
        for start in range(0, len(tokens), size):
            chunk = tokens[start : start + size]
            last = np.array([len(chunk) - 1], np.int32)
            rows = self._draft.step([self._sequence], [chunk], last, phase)
        last_row: NDArray[np.float32] = rows[0]
        return last_row

    def _start_over(self) -> None:
        self._sequence.close()
        self._seen = np.empty(0, np.int32)
