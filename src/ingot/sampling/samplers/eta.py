"""Eta sampling (Hewitt et al., 2022): a cut that is milder where the entropy is high."""

from dataclasses import dataclass

from ingot.sampling import arithmetic
from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler
from ingot.sampling.samplers.epsilon import keep_probable


@dataclass(frozen=True, slots=True)
class Eta(Sampler):
    """Leaves the tokens of at least min(cutoff, sqrt(cutoff) * exp(-entropy))."""

    cutoff: float
    least: int = 1

    def apply(self, candidates: Candidates) -> None:
        """Cut."""
        log_cutoff = arithmetic.log(self.cutoff)
        by_entropy = 0.5 * log_cutoff - arithmetic.entropy(candidates.logits)
        keep_probable(candidates, min(log_cutoff, by_entropy), self.least)
