"""Locally typical sampling (Meister et al., 2022): tokens about as surprising as expected."""

from dataclasses import dataclass

import numpy as np

from ingot import _native
from ingot.sampling import arithmetic
from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler

_FIRST_LOOK = 1024
_FURTHER = 8


@dataclass(frozen=True, slots=True)
class TypicalP(Sampler):
    """Leaves the tokens whose surprise is nearest the entropy, until they add up to `share`."""

    share: float
    least: int = 1

    def apply(self, candidates: Candidates) -> None:
        """Cut."""
        logits = candidates.logits
        logprobs = logits.astype(np.float64) - arithmetic.log_sum_exp(logits)
        away = np.abs(-logprobs - arithmetic.entropy(logits))
        ids = candidates.candidate_ids()
        look = _FIRST_LOOK
        while True:
            # The nearest are put in order; more only if they do not add up.
            few = look < len(away)
            bound = np.partition(away, look)[look] if few else np.inf
            nearest = np.flatnonzero(away <= bound)
            nearest = nearest[np.lexsort((ids[nearest], away[nearest]))]
            masses = np.cumsum(_native.exp(logprobs[nearest]))
            count = max(int(np.searchsorted(masses, self.share)) + 1, self.least)
            if count <= len(nearest) or not few:
                candidates.keep(nearest[:count])
                return
            look *= _FURTHER
