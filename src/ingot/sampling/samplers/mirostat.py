"""Mirostat, versions 1 and 2 (Basu et al., 2020): keeps the surprise of the text near a target.

Both remove tokens by a bound `mu` on their surprise (in bits) and move it after each token: down
if the token surprised more than `tau`, up if less. Version 1 turns the bound into a number of
tokens by estimating how the probabilities fall off (Zipf's law); version 2 uses it directly. They
pick the token themselves, so they come last.
"""

from abc import abstractmethod
from typing import Self

import numpy as np

from ingot.sampling import arithmetic
from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler
from ingot.sampling.samplers.draw import DRAW

_LN2 = arithmetic.log(2.0)
_ESTIMATED_FROM = 100  # likeliest tokens


class _Mirostat(Sampler):
    def __init__(self, tau: float, eta: float) -> None:
        self._tau, self._eta = tau, eta
        self.reset()

    def reset(self) -> None:
        self.mu = 2.0 * self._tau
        self._pending: tuple[int, float] | None = None  # a token and its surprise

    def clone(self) -> Self:
        copy = type(self)(self._tau, self._eta)
        copy.mu, copy._pending = self.mu, self._pending
        return copy

    def apply(self, candidates: Candidates) -> None:
        self._cut(candidates)
        index = arithmetic.draw(candidates.logits, candidates.uniform(DRAW))
        candidates.sampled = index
        surprise = -arithmetic.log(float(candidates.probabilities()[index])) / _LN2
        self._pending = candidates.token, surprise

    def accept(self, token: int) -> None:
        if self._pending is not None and self._pending[0] == token:
            self.mu -= self._eta * (self._pending[1] - self._tau)
        self._pending = None

    @abstractmethod
    def _cut(self, candidates: Candidates) -> None:
        """Keep the tokens that the bound allows."""


class Mirostat1(_Mirostat):
    """Keeps as many tokens as the bound allows if the probabilities follow Zipf's law."""

    def _cut(self, candidates: Candidates) -> None:
        vocabulary = len(candidates.row)
        row, ids = candidates.logits, candidates.ids
        candidates.keep_top(_ESTIMATED_FROM)
        # The slope of log p over log rank: sum(t * b) / sum(t * t) over neighbours.
        differences = -np.diff(candidates.logits.astype(np.float64))
        ranks = np.arange(1.0, len(candidates) + 1)
        steps = arithmetic.logs(ranks[1:] / ranks[:-1])
        if len(steps) == 0:
            return
        slope = float(np.cumsum(steps * differences)[-1] / np.cumsum(steps * steps)[-1])
        candidates.logits, candidates.ids = row, ids
        candidates.keep_top(self._count(slope, vocabulary))

    def _count(self, slope: float, vocabulary: int) -> int:
        """k = (e * 2^mu / (1 - n^-e))^(1/slope) with e = slope - 1."""
        if slope <= 0.0:
            return vocabulary  # all equally likely
        excess = slope - 1.0
        # e / (1 - n^-e) goes to 1 / log(n) as e goes to 0.
        share = 1.0 / arithmetic.log(float(vocabulary))
        if abs(excess) > 1e-9:
            share = excess / (1.0 - arithmetic.exp(-excess * arithmetic.log(float(vocabulary))))
        log_count = (arithmetic.log(share) + self.mu * _LN2) / slope
        if log_count >= arithmetic.log(float(vocabulary)):
            return vocabulary
        return max(1, int(arithmetic.exp(log_count)))


class Mirostat2(_Mirostat):
    """Keeps the tokens whose surprise is at most the bound, and always the likeliest."""

    def _cut(self, candidates: Candidates) -> None:
        _, total = arithmetic.largest_and_total(candidates.logits)
        candidates.keep_near_top(self.mu * _LN2 - arithmetic.log(total))
