"""Cuts: samplers that remove unlikely tokens from the candidates (XTC: likely ones).

In: candidates. Out: fewer candidates, with their logits as they were. None of them keeps state.
`least` is the number of tokens that a cut keeps in any case.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingot import _native
from ingot.sampling import arithmetic
from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler

EXCLUDE = 1  # the purpose of XTC's random number

# Top-p and typical-p sort this many tokens first: enough for most distributions. If it is not
# enough, they sort `_GROWTH` times as many.
_TOP_P_FIRST = 256
_TYPICAL_FIRST = 1024
_GROWTH = 8


@dataclass(frozen=True, slots=True)
class TopK(Sampler):
    """Top-k: keeps the `count` likeliest tokens, likeliest first."""

    count: int

    def apply(self, candidates: Candidates) -> None:
        candidates.keep_top(self.count)


@dataclass(frozen=True, slots=True)
class TopP(Sampler):
    """Top-p, or nucleus sampling (Holtzman et al., 2019).

    Keeps the fewest tokens, likeliest first, whose probabilities add up to `share`.
    """

    share: float
    least: int = 1

    def apply(self, candidates: Candidates) -> None:
        if candidates.ids is None:
            reached = self._sort_enough(candidates)
        else:
            candidates.keep_top(len(candidates))
            reached = self._reached(candidates.probabilities())
        count = max(reached + 1, self.least)
        candidates.take(candidates.candidate_ids()[:count], candidates.logits[:count])

    def _sort_enough(self, candidates: Candidates) -> int:
        """Sort as many of the likeliest as are needed: the whole vocabulary would be slow."""
        row = candidates.row
        largest, total = arithmetic.largest_and_total(row)
        count = max(_TOP_P_FIRST, self.least)
        while True:
            candidates.take(*arithmetic.top(row, count))
            powers = _native.exp(candidates.logits.astype(np.float64) - largest)
            reached = self._reached(powers / total)
            if reached < len(candidates) or len(candidates) < count:
                return reached
            count *= _GROWTH

    def _reached(self, probabilities: NDArray[np.float64]) -> int:
        """The index at which the probabilities add up to `share`; after the last if they do not."""
        return int(np.searchsorted(np.cumsum(probabilities), self.share))


@dataclass(frozen=True, slots=True)
class MinP(Sampler):
    """Min-p (Nguyen et al., 2024): keeps tokens at least `share` times as likely as the likeliest.

    A share of the largest probability is a distance from the largest logit, so no softmax is
    needed.
    """

    share: float
    least: int = 1

    def apply(self, candidates: Candidates) -> None:
        candidates.keep_near_top(-arithmetic.log(self.share), self.least)


@dataclass(frozen=True, slots=True)
class TypicalP(Sampler):
    """Locally typical sampling (Meister et al., 2022).

    Keeps the tokens whose surprise is nearest to the entropy, until they add up to `share`.
    """

    share: float
    least: int = 1

    def apply(self, candidates: Candidates) -> None:
        logits = candidates.logits
        logprobs = logits.astype(np.float64) - arithmetic.log_sum_exp(logits)
        distances = np.abs(-logprobs - arithmetic.entropy(logits))
        ids = candidates.candidate_ids()
        sorted_count = max(_TYPICAL_FIRST, self.least)
        while True:
            is_partial = sorted_count < len(distances)
            bound = np.partition(distances, sorted_count)[sorted_count] if is_partial else np.inf
            nearest = np.flatnonzero(distances <= bound)
            nearest = nearest[np.lexsort((ids[nearest], distances[nearest]))]
            masses = np.cumsum(_native.exp(logprobs[nearest]))
            reached = int(np.searchsorted(masses, self.share))
            if reached < len(nearest) or not is_partial:
                candidates.keep(nearest[: max(reached + 1, self.least)])
                return
            sorted_count *= _GROWTH


@dataclass(frozen=True, slots=True)
class TailFree(Sampler):
    """Tail-free sampling (Phénix and Egan, 2019): cuts where the probabilities flatten out.

    The curvature of the sorted probabilities shows where the tail begins: tokens are kept up to
    the share `mass` of all curvature. It sorts its candidates, so another cut should come first.
    """

    mass: float
    least: int = 1

    def apply(self, candidates: Candidates) -> None:
        candidates.keep_top(len(candidates))
        if len(candidates) < 3:
            return
        curvature = np.abs(np.diff(candidates.probabilities(), 2))
        passed = np.cumsum(curvature)
        # Nothing is beyond if all are equally likely: there is no tail.
        beyond = np.flatnonzero(passed > self.mass * passed[-1])
        count = max(int(beyond[0]) if len(beyond) else len(candidates), self.least)
        candidates.keep(np.arange(min(count, len(candidates))))


@dataclass(frozen=True, slots=True)
class Epsilon(Sampler):
    """Epsilon sampling (Hewitt et al., 2022): keeps tokens of at least probability `cutoff`.

    The likeliest token always stays.
    """

    cutoff: float
    least: int = 1

    def apply(self, candidates: Candidates) -> None:
        _keep_probable(candidates, arithmetic.log(self.cutoff), self.least)


@dataclass(frozen=True, slots=True)
class Eta(Sampler):
    """Eta sampling (Hewitt et al., 2022): epsilon with a lower cutoff if the entropy is high.

    Keeps tokens of at least probability min(cutoff, sqrt(cutoff) * exp(-entropy)).
    """

    cutoff: float
    least: int = 1

    def apply(self, candidates: Candidates) -> None:
        log_cutoff = arithmetic.log(self.cutoff)
        by_entropy = 0.5 * log_cutoff - arithmetic.entropy(candidates.logits)
        _keep_probable(candidates, min(log_cutoff, by_entropy), self.least)


def _keep_probable(candidates: Candidates, logprob: float, least: int) -> None:
    """Keep the tokens of at least this log-probability, and always the likeliest."""
    # The likeliest has log-probability -log(total), where total sums exp(logit - largest).
    _, total = arithmetic.largest_and_total(candidates.logits)
    candidates.keep_near_top(-arithmetic.log(total) - logprob, least)


@dataclass(frozen=True, slots=True)
class TopNSigma(Sampler):
    """Top-n-sigma (Tang et al., 2024): keeps logits within n standard deviations of the largest."""

    deviations: float

    def apply(self, candidates: Candidates) -> None:
        distance = self.deviations * arithmetic.deviation(candidates.logits)
        candidates.keep_near_top(distance)


@dataclass(frozen=True, slots=True)
class Xtc(Sampler):
    """XTC, exclude top choices: sometimes removes all likely tokens except the least likely one.

    With probability `chance`, if several tokens have at least probability `threshold`, only the
    least likely of these stays, together with all tokens below the threshold.
    """

    chance: float
    threshold: float
    least: int = 1

    def apply(self, candidates: Candidates) -> None:
        if self.threshold > 0.5 or candidates.uniform(EXCLUDE) >= self.chance:
            return  # two tokens cannot both be above one half
        logits = candidates.logits
        above = np.flatnonzero(candidates.probabilities() >= self.threshold)
        excluded = len(above) - 1
        if excluded < 1 or len(candidates) - excluded < self.least:
            return
        ids = candidates.candidate_ids()[above]
        last = np.lexsort((ids, -logits[above]))[-1]
        stays = np.ones(len(candidates), np.bool_)
        stays[above] = False
        stays[above[last]] = True
        candidates.keep(stays)
