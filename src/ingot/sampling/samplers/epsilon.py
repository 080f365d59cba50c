"""Epsilon sampling (Hewitt et al., 2022): tokens of at least a fixed probability."""

from dataclasses import dataclass

from ingot.sampling import arithmetic
from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler


@dataclass(frozen=True, slots=True)
class Epsilon(Sampler):
    """Leaves the tokens of at least probability `cutoff`, and always the likeliest."""

    cutoff: float
    least: int = 1

    def apply(self, candidates: Candidates) -> None:
        """Cut."""
        keep_probable(candidates, arithmetic.log(self.cutoff), self.least)


def keep_probable(candidates: Candidates, logprob: float, least: int) -> None:
    """Leave the tokens of at least this log-probability, and always the likeliest."""
    # The likeliest has log-probability -log(total), where total sums exp(logit - largest).
    _, total = arithmetic.largest_and_total(candidates.logits)
    candidates.keep_near_top(-arithmetic.log(total) - logprob, least)
