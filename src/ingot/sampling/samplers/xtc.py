"""XTC, exclude top choices: now and then takes away all likely tokens but the least likely.

With probability `chance`, if several tokens have at least probability `threshold`, only the
least likely of these stays, together with all below the threshold.
"""

from dataclasses import dataclass

import numpy as np

from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler

EXCLUDE = 1  # the purpose of this random number


@dataclass(frozen=True, slots=True)
class Xtc(Sampler):
    """Leaves out the likeliest tokens where there is another good one."""

    chance: float
    threshold: float
    least: int = 1

    def apply(self, candidates: Candidates) -> None:
        """Cut, in some of the calls."""
        if self.threshold > 0.5 or candidates.uniform(EXCLUDE) >= self.chance:
            return  # above a half there can be no second one
        logits = candidates.logits
        above = np.flatnonzero(candidates.probabilities() >= self.threshold)
        excluded = len(above) - 1
        if excluded < 1 or len(candidates) - excluded < self.least:
            return
        ids = candidates.candidate_ids()[above]
        last = np.lexsort((ids, -logits[above]))[-1]
        stays = np.ones(len(candidates), np.bool_)
        stays[above] = False
        stays[above[last]] = True
        candidates.keep(stays)
