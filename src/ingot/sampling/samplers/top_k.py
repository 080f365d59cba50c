"""Top-k: the k likeliest tokens."""

from dataclasses import dataclass

from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler


@dataclass(frozen=True, slots=True)
class TopK(Sampler):
    """Leaves the `count` likeliest, largest first."""

    count: int

    def apply(self, candidates: Candidates) -> None:
        """Cut."""
        candidates.keep_top(self.count)
