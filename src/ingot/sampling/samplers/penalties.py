"""Penalties for tokens that came before: repetition (Keskar et al., 2019), presence, frequency.

The window of the newest tokens, prompt included, is counted. A token in it has its logit
divided by `repeat` (multiplied, if negative), and lowered by `presence` once and by
`frequency` for each time it came.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ingot.backends.device_sampler import LogitEdits
from ingot.sampling.arithmetic import Ids
from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler


@dataclass(frozen=True, slots=True)
class Penalties(Sampler):
    """Lowers the logits of the tokens among the last `window` (-1: all)."""

    cuts: ClassVar[bool] = False

    window: int
    repeat: float
    presence: float
    frequency: float

    def apply(self, candidates: Candidates) -> None:
        """Lower."""
        edits = self._edits(candidates.token_ids)
        where, which = candidates.find(edits.ids)
        logits, repeat = candidates.logits[where], np.float32(edits.repeat)
        scaled = np.where(logits <= 0, logits * repeat, logits / repeat)
        candidates.logits[where] = scaled - edits.lowered[which]

    def edits(self, token_ids: Ids, generated: int, ahead: int) -> LogitEdits | None:
        """The same; of tokens to come nothing is known."""
        del generated
        return None if ahead else self._edits(token_ids)

    def _edits(self, tokens: Ids) -> LogitEdits:
        recent = tokens if self.window < 0 else tokens[max(0, len(tokens) - self.window) :]
        ids, counts = np.unique(recent, return_counts=True)
        lowered = counts * np.float32(self.frequency) + np.float32(self.presence)
        # A smaller number would be none in 32 bits.
        return LogitEdits(ids, lowered.astype(np.float32), max(self.repeat, 1e-9))
