"""Draw: one token at random, by the probabilities that the chain has left."""

from dataclasses import dataclass

from ingot.sampling import arithmetic
from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler

DRAW = 0  # the purpose of this random number


@dataclass(frozen=True, slots=True)
class Draw(Sampler):
    """Chooses at random."""

    def apply(self, candidates: Candidates) -> None:
        """Choose."""
        candidates.chosen = arithmetic.draw(candidates.logits, candidates.uniform(DRAW))
