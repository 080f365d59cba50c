"""The last sampler of a chain, which picks the token: greedy, at random, or adaptive-p.

Mirostat (mirostat.py) can take their place, too.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from ingot.sampling import arithmetic
from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler

DRAW = 0  # the purpose of this random number

# The shape of adaptive-p's hump, as in llama.cpp: its height, its width, and how steep it is.
_PEAK, _WIDTH, _SHARPNESS = 5.0, 0.3, 10.0


@dataclass(frozen=True, slots=True)
class Greedy(Sampler):
    """The likeliest token; among equals, the one with the smallest id."""

    def apply(self, candidates: Candidates) -> None:
        candidates.keep_top(1)
        candidates.sampled = 0


@dataclass(frozen=True, slots=True)
class Draw(Sampler):
    """A token at random, by the probabilities of the candidates."""

    def apply(self, candidates: Candidates) -> None:
        candidates.sampled = arithmetic.draw(candidates.logits, candidates.uniform(DRAW))


class AdaptiveP(Sampler):
    """Adaptive-p: prefers tokens whose probability is near `target`, and keeps the average there.

    After a token that was likelier than the target, the next one aims lower, and vice versa: the
    aim is 2 * target - (running average of the sampled probabilities). The logits become a hump
    around the aim. `decay` sets how slowly the average forgets.
    """

    def __init__(self, target: float, decay: float) -> None:
        self._target, self._decay = target, decay
        self.reset()

    def reset(self) -> None:
        self._weight = 1.0 / (1.0 - self._decay)
        self._sum = self._target * self._weight
        self._pending: tuple[int, float] | None = None  # the token, its probability before

    def clone(self) -> Self:
        copy = type(self)(self._target, self._decay)
        copy._weight, copy._sum, copy._pending = self._weight, self._sum, self._pending
        return copy

    @property
    def aim(self) -> float:
        """The probability that the next token should have."""
        return min(max(2.0 * self._target - self._sum / self._weight, 0.0), 1.0)

    def apply(self, candidates: Candidates) -> None:
        before = candidates.probabilities()
        distance = np.abs(before - self.aim) / _WIDTH
        hump = _PEAK - _SHARPNESS * distance * distance / (1.0 + distance)
        allowed = candidates.logits > -np.inf
        candidates.logits[:] = np.where(allowed, hump, -np.inf).astype(np.float32)
        index = arithmetic.draw(candidates.logits, candidates.uniform(DRAW))
        candidates.sampled = index
        self._pending = candidates.token, float(before[index])

    def accept(self, token: int) -> None:
        if self._pending is not None and self._pending[0] == token:
            self._sum = self._pending[1] + self._decay * self._sum
            self._weight = 1.0 + self._decay * self._weight
        self._pending = None
