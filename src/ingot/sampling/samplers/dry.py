"""DRY, "don't repeat yourself" (p-e-w, 2024): penalties for continuing what was said before.

If the end of the text also stands earlier in it, the token that followed there would go on
repeating. Its logit is lowered by `multiplier * base ** (length - allowed_length)`, where
length is that of the longest repetition it would continue. No repetition counts across a
sequence breaker, and no token that holds a breaker is lowered.
"""

import numpy as np

from ingot import _native
from ingot.arrays import Logits
from ingot.sampling import arithmetic
from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler
from ingot.sampling.samplers.breakers import Breakers

_LARGEST_LOG = 88.7  # of a float: keeps the penalty finite


class Dry(Sampler):
    """Lowers the logits of the tokens that would go on repeating the last `window` (-1: all)."""

    cuts = False

    def __init__(
        self,
        multiplier: float,
        base: float,
        allowed_length: int,
        window: int,
        breakers: Breakers,
    ) -> None:
        self._multiplier, self._base = multiplier, base
        self._allowed, self._window = allowed_length, window
        self._breakers = breakers
        growth = arithmetic.log(base)
        self._largest_power = int(_LARGEST_LOG / growth) if growth > 1e-6 else 0

    def reset(self) -> None:
        """Forget the text."""
        self._breakers.reset()

    def clone(self) -> "Dry":
        """Copy what is remembered of the text."""
        breakers = self._breakers.clone()
        return Dry(self._multiplier, self._base, self._allowed, self._window, breakers)

    def apply(self, candidates: Candidates) -> None:
        """Lower."""
        tokens = candidates.token_ids
        size = len(tokens) if self._window < 0 else min(self._window, len(tokens))
        if size <= self._allowed:
            return
        limit = self._breakers.tokens_since(tokens, size)
        if limit < self._allowed:
            return
        recent = np.ascontiguousarray(tokens[len(tokens) - size :])
        lengths = np.zeros(size, np.int32)
        _native.repeat_lengths(recent, lengths)
        lengths = np.minimum(lengths[:-1], limit)
        ends = np.flatnonzero(lengths >= self._allowed)
        ids, which_id = np.unique(recent[ends + 1], return_inverse=True)
        longest = np.zeros(len(ids), np.int32)
        np.maximum.at(longest, which_id, lengths[ends])
        lowered = np.array([not self._breakers.within(token) for token in ids.tolist()], np.bool_)
        where, which = candidates.find(ids[lowered])
        candidates.logits[where] -= self._penalties(longest[lowered])[which]

    def _penalties(self, lengths: np.ndarray[tuple[int], np.dtype[np.int32]]) -> Logits:
        powers = np.minimum(lengths - self._allowed, self._largest_power)
        # By multiplication, since `pow` may differ between machines.
        table = np.cumprod(np.r_[1.0, np.full(powers.max(initial=0), self._base)])
        return (self._multiplier * table[powers]).astype(np.float32)
