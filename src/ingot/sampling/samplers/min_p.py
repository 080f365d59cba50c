"""Min-p (Nguyen et al., 2024): tokens at least `share` times as likely as the likeliest."""

from dataclasses import dataclass

from ingot.sampling import arithmetic
from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler


@dataclass(frozen=True, slots=True)
class MinP(Sampler):
    """Leaves the tokens of at least `share` of the largest probability."""

    share: float
    least: int = 1

    def apply(self, candidates: Candidates) -> None:
        """Cut."""
        # A share of the largest probability is a distance from the largest logit: no softmax.
        candidates.keep_near_top(-arithmetic.log(self.share), self.least)
