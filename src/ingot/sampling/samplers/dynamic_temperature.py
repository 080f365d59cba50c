"""Dynamic temperature: low where the model is sure, high where it is not.

The entropy of the candidates, as a share of the most it could be, says where between
`temperature - spread` and `temperature + spread` the temperature lies.
"""

from dataclasses import dataclass

from ingot.sampling import arithmetic
from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler
from ingot.sampling.samplers.temperature import scale


@dataclass(frozen=True, slots=True)
class DynamicTemperature(Sampler):
    """Divides the logits by a temperature that grows with `entropy ** exponent`."""

    temperature: float
    spread: float
    exponent: float

    def apply(self, candidates: Candidates) -> None:
        """Scale."""
        if len(candidates) < 2:
            return
        share = arithmetic.entropy(candidates.logits) / arithmetic.log(float(len(candidates)))
        lowest = max(0.0, self.temperature - self.spread)
        highest = self.temperature + self.spread
        grown = arithmetic.exp(self.exponent * arithmetic.log(share)) if self.exponent else 1.0
        scale(candidates, lowest + (highest - lowest) * grown)
