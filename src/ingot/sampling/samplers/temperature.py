"""Temperature: divides the logits. Below 1 likely tokens become likelier, above 1 less likely."""

from dataclasses import dataclass

import numpy as np

from ingot.sampling import arithmetic
from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler


@dataclass(frozen=True, slots=True)
class Temperature(Sampler):
    """Divides the logits by `temperature`; 0 keeps only the likeliest token."""

    temperature: float

    def apply(self, candidates: Candidates) -> None:
        _divide(candidates, self.temperature)


@dataclass(frozen=True, slots=True)
class DynamicTemperature(Sampler):
    """A temperature between `temperature - spread` and `temperature + spread`.

    It grows with `entropy ** exponent`, where the entropy is a share of the largest possible one:
    low if the model is sure, high if it is not.
    """

    temperature: float
    spread: float
    exponent: float

    def apply(self, candidates: Candidates) -> None:
        if len(candidates) < 2:
            return
        share = arithmetic.entropy(candidates.logits) / arithmetic.log(float(len(candidates)))
        lowest = max(0.0, self.temperature - self.spread)
        highest = self.temperature + self.spread
        grown = arithmetic.exp(self.exponent * arithmetic.log(share)) if self.exponent else 1.0
        _divide(candidates, lowest + (highest - lowest) * grown)


def _divide(candidates: Candidates, temperature: float) -> None:
    """Divide the logits; keep only the likeliest if the temperature is too small to divide by."""
    divisor = np.float32(temperature)
    if divisor < np.finfo(np.float32).tiny:
        candidates.keep_top(1)
        return
    logits = candidates.logits
    largest = logits.max()
    if np.isfinite(largest):  # otherwise no token can be sampled, which the draw reports
        with np.errstate(over="ignore"):
            # The largest becomes 0: at a small temperature the others overflow, to -inf.
            np.subtract(logits, largest, out=logits)
            np.divide(logits, divisor, out=logits)
