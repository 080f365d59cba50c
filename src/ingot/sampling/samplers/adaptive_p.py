"""Adaptive-p: prefers tokens whose probability is near a target, and keeps the average there.

After a token that was likelier than the target the next one aims lower, and the other way
round: the aim is 2 * target - (running average of the chosen probabilities). Logits become a
hump around the aim. It chooses the token itself, so it comes last.
"""

from typing import Self

import numpy as np

from ingot.sampling import arithmetic
from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler
from ingot.sampling.samplers.draw import DRAW

# The hump, as llama.cpp has it: its height, its width, and how steeply it falls off.
_PEAK, _WIDTH, _SHARPNESS = 5.0, 0.3, 10.0


class AdaptiveP(Sampler):
    """Draws around the probability `target`; `decay` says how slowly the average forgets."""

    def __init__(self, target: float, decay: float) -> None:
        self._target, self._decay = target, decay
        self.reset()

    def reset(self) -> None:
        """Begin as if the average were the target."""
        self._weight = 1.0 / (1.0 - self._decay)
        self._sum = self._target * self._weight
        self._pending: tuple[int, float] | None = None  # a token and its probability before

    def clone(self) -> Self:
        """Copy the average as it is now."""
        copy = type(self)(self._target, self._decay)
        copy._weight, copy._sum, copy._pending = self._weight, self._sum, self._pending
        return copy

    @property
    def aim(self) -> float:
        """The probability that the next token should have."""
        return min(max(2.0 * self._target - self._sum / self._weight, 0.0), 1.0)

    def apply(self, candidates: Candidates) -> None:
        """Make the hump and choose."""
        before = candidates.probabilities()
        away = np.abs(before - self.aim) / _WIDTH
        hump = _PEAK - _SHARPNESS * away * away / (1.0 + away)
        allowed = candidates.logits > -np.inf
        candidates.logits[:] = np.where(allowed, hump, -np.inf).astype(np.float32)
        index = arithmetic.draw(candidates.logits, candidates.uniform(DRAW))
        candidates.chosen = index
        self._pending = candidates.token, float(before[index])

    def accept(self, token: int) -> None:
        """Move the average."""
        if self._pending is not None and self._pending[0] == token:
            self._sum = self._pending[1] + self._decay * self._sum
            self._weight = 1.0 + self._decay * self._weight
        self._pending = None
