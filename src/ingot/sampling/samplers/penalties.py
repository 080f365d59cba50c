"""Penalties for tokens that came before: repetition (Keskar et al., 2019), presence, frequency.

The window of the newest tokens, prompt included, is counted. A token in it has its logit
divided by `repeat` (multiplied, if negative), and lowered by `presence` once and by
`frequency` for each time it came.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ingot.sampling.arithmetic import Ids, Logits
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
        ids, lowered = self.lowered(candidates.token_ids)
        where, which = candidates.find(ids)
        logits, repeat = candidates.logits[where], self.divisor
        scaled = np.where(logits <= 0, logits * repeat, logits / repeat)
        candidates.logits[where] = scaled - lowered[which]

    @property
    def divisor(self) -> np.float32:
        """What logits are divided by."""
        return np.float32(max(self.repeat, 1e-9))  # a smaller number would be none in 32 bits

    def lowered(self, tokens: Ids) -> tuple[Ids, Logits]:
        """The tokens of a text that are penalized, and by how much their logits are lowered."""
        recent = tokens if self.window < 0 else tokens[max(0, len(tokens) - self.window) :]
        ids, counts = np.unique(recent, return_counts=True)
        lowered = counts * np.float32(self.frequency) + np.float32(self.presence)
        return ids, lowered.astype(np.float32)
