"""Greedy: the likeliest token, the one with the smallest id among equals."""

from dataclasses import dataclass

from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler


@dataclass(frozen=True, slots=True)
class Greedy(Sampler):
    """Chooses the likeliest token."""

    def apply(self, candidates: Candidates) -> None:
        """Choose."""
        candidates.keep_top(1)
        candidates.chosen = 0
