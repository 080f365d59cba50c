"""Top-p, or nucleus sampling (Holtzman et al., 2019): the fewest tokens that reach p."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingot import _native
from ingot.sampling import arithmetic
from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler

_FIRST_LOOK = 256  # tokens that hold 0.95 of most distributions
_FURTHER = 8  # times as many, when they do not


@dataclass(frozen=True, slots=True)
class TopP(Sampler):
    """Leaves the likeliest tokens, until their probabilities add up to `share`."""

    share: float
    least: int = 1

    def apply(self, candidates: Candidates) -> None:
        """Cut."""
        if candidates.ids is not None:
            candidates.keep_top(len(candidates))
            self._cut(candidates, candidates.probabilities())
            return
        # Of the whole vocabulary only as many are put in order as are needed.
        row = candidates.row
        largest, total = arithmetic.largest_and_total(row)
        count = max(_FIRST_LOOK, self.least)
        while True:
            candidates.take(*arithmetic.top(row, count))
            found = len(candidates)
            powers = _native.exp(candidates.logits.astype(np.float64) - largest)
            if self._cut(candidates, powers / total) or found < count or count >= len(row):
                return
            count *= _FURTHER

    def _cut(self, candidates: Candidates, probabilities: NDArray[np.float64]) -> bool:
        """Cut a list that begins with the likeliest; whether it reaches far enough."""
        reached = int(np.searchsorted(np.cumsum(probabilities), self.share))
        count = max(reached + 1, self.least)
        if count > len(candidates):
            return False
        assert candidates.ids is not None, "the candidates are listed"
        candidates.take(candidates.ids[:count], candidates.logits[:count])
        return True
