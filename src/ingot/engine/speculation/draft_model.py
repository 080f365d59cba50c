"""DraftProposer: guesses of a draft model, which is smaller and has the same vocabulary.

Each text has its own sequence in the draft model, which follows the text.
"""

import os

import numpy as np

from ingot.arrays import Floats, Ints
from ingot.backends.batch import ExecutionPhase
from ingot.engine.model.loaded_model import LoadedModel
from ingot.engine.speculation.proposers import Proposer, Prospect
from ingot.errors import CacheFullError, ConfigError
from ingot.models.drafts import require_same_vocabulary

_PROSPECT = Prospect(0, 0.6)


class DraftProposer(Proposer):
    """Guesses the likeliest tokens of a draft model, one after the other."""

    def __init__(self, draft: LoadedModel) -> None:
        self._draft = draft
        self._sequence = draft.sequence()
        self._seen: Ints = np.empty(0, np.int32)  # the tokens in the sequence

    @property
    def has_begun(self) -> bool:
        """Whether the draft model has read the text up to its last guess."""
        return len(self._seen) > 0

    def prospect(self, tokens: Ints) -> Prospect | None:
        """All its guesses are of one sort."""
        return _PROSPECT if len(tokens) < self._draft.context else None

    def propose(self, tokens: Ints, most: int) -> list[int]:
        """The likeliest tokens after these, by the draft model."""
        most = min(most, self._draft.context - len(tokens))
        if most < 1:
            return []
        try:
            return self._write(tokens, most)
        except CacheFullError:  # other texts fill the draft model's cache
            self.close()
            return []

    def close(self) -> None:
        """Free its part of the draft model's cache."""
        self._sequence.close()
        self._seen = np.empty(0, np.int32)

    def _write(self, tokens: Ints, most: int) -> list[int]:
        shared = min(len(self._seen), len(tokens) - 1)
        different = np.flatnonzero(self._seen[:shared] != tokens[:shared])
        if len(different):
            shared = int(different[0])
        if shared < len(self._seen):
            if self._sequence.can_shrink(shared):
                self._sequence.shrink(shared)
            else:
                self.close()
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


def open_draft(
    path: str | os.PathLike[str],
    model: LoadedModel,
    *,
    threads: int | None,
    device: str,
    numa: str,
) -> LoadedModel:
    """Open a draft model for a model; one that cannot guess for it is an error.

    Its threads are pinned to no cores: those of the model, which spin between steps, have theirs.
    """
    draft = LoadedModel(path, threads=threads, device=device, numa=numa)
    try:
        _require_rewind(draft)
        require_one_graph(model, draft)
        require_same_vocabulary(model.file, draft.file)
    except ConfigError:
        draft.close()
        raise
    return draft


def _require_rewind(draft: LoadedModel) -> None:
    if draft.layout.recurrent:
        raise ConfigError(
            f"{draft.file.path} is a recurrent model, whose state cannot be taken back after a "
            "wrong guess; it cannot be a draft model"
        )


def require_one_graph(*models: LoadedModel) -> None:
    """Refuse a draft of or for a model whose prompts an encoder reads: each has its own prompt."""
    for model in models:
        if model.graph.encoder is not None:
            raise ConfigError(
                f"{model.file.path} is an encoder-decoder, which has no draft model and is none; "
                "leave draft out, or take speculation='ngram'"
            )
