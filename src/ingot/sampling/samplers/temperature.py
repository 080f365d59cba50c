"""Temperature: divides the logits. Below 1 likely tokens become likelier, above 1 less so."""

from dataclasses import dataclass

import numpy as np

from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler


@dataclass(frozen=True, slots=True)
class Temperature(Sampler):
    """Divides the logits by `temperature`; 0 leaves only the likeliest token."""

    temperature: float

    def apply(self, candidates: Candidates) -> None:
        """Scale."""
        scale(candidates, self.temperature)


def scale(candidates: Candidates, temperature: float) -> None:
    """Divide the logits; at a temperature too small to divide by, leave the likeliest."""
    divisor = np.float32(temperature)
    if divisor < np.finfo(np.float32).tiny:
        candidates.keep_top(1)
        return
    logits = candidates.logits
    largest = logits.max()
    if np.isfinite(largest):  # else there is nothing to choose, which the draw reports
        with np.errstate(over="ignore"):
            # The largest becomes 0: at a small temperature the others overflow, to -inf.
            np.subtract(logits, largest, out=logits)
            np.divide(logits, divisor, out=logits)
