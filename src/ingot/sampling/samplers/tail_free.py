"""Tail-free sampling (Phénix and Egan, 2019): cuts where the probabilities flatten out.

The curvature of the sorted probabilities shows where the tail begins: tokens are kept until
the share `mass` of all curvature lies before them.
"""

from dataclasses import dataclass

import numpy as np

from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler


@dataclass(frozen=True, slots=True)
class TailFree(Sampler):
    """Leaves the tokens before the tail. Sorts its candidates, so a cut should come first."""

    mass: float
    least: int = 1

    def apply(self, candidates: Candidates) -> None:
        """Cut."""
        candidates.keep_top(len(candidates))
        if len(candidates) < 3:
            return
        curvature = np.abs(np.diff(candidates.probabilities(), 2))
        passed = np.cumsum(curvature)
        if passed[-1] == 0.0:
            return  # all equally likely: there is no tail
        beyond = np.flatnonzero(passed > self.mass * passed[-1])
        count = max(int(beyond[0]) if len(beyond) else len(candidates), self.least)
        candidates.keep(np.arange(min(count, len(candidates))))
