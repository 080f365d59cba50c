"""Top-n-sigma (Tang et al., 2024): logits within n standard deviations of the largest."""

from dataclasses import dataclass

from ingot.sampling import arithmetic
from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler


@dataclass(frozen=True, slots=True)
class TopNSigma(Sampler):
    """Leaves the logits at most `deviations` standard deviations below the largest."""

    deviations: float

    def apply(self, candidates: Candidates) -> None:
        """Cut."""
        distance = self.deviations * arithmetic.deviation(candidates.logits)
        candidates.keep_near_top(distance)
