"""Logit bias: a number added to the logits of some tokens; minus infinity bans one.

The tokens that end a text are banned until it has `min_tokens`.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from ingot.arrays import Ints
from ingot.backends.device_sampler import LogitEdits
from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler


class LogitBias(Sampler):
    """Adds `biases` to the logits, and bans `ends` before `min_tokens`."""

    cuts = False

    def __init__(
        self, biases: Mapping[int, float], ends: Iterable[int] = (), min_tokens: int = 0
    ) -> None:
        self._ids = np.array(list(biases.keys()), np.int32)
        self._biases = np.array(list(biases.values()), np.float32)
        self._ends = np.array(sorted(ends), np.int32)
        self._min_tokens = min_tokens
        self._edits = LogitEdits(self._ids, -self._biases, 1.0)

    def apply(self, candidates: Candidates) -> None:
        if len(self._ids):
            where, which = candidates.find(self._ids)
            candidates.logits[where] += self._biases[which]
        if candidates.generated < self._min_tokens:
            where, _ = candidates.find(self._ends)
            candidates.logits[where] = -np.inf

    def edits(self, token_ids: Ints, generated: int, ahead: int) -> LogitEdits | None:
        del token_ids
        if generated + ahead < self._min_tokens:
            return None
        return self._edits
