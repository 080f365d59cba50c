"""Infill: for text between a prefix and a suffix; prefers to end.

As in llama.cpp: if an end-of-text token is likely enough, only these stay. Otherwise tokens with a
common prefix are counted together, and those that are likely then stay, along with the
end-of-text tokens. It looks at the likeliest tokens, so it should come after top-k and top-p.
"""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler

_LOOK = 256  # tokens: comparing every pair of more would take long
_END_FACTOR = 3.0
_LIKELY = 0.2


class Infill(Sampler):
    """Keeps tokens that are likely alone or together with tokens of the same prefix."""

    def __init__(self, ends: Iterable[int], end: int, token_bytes: Callable[[int], bytes]) -> None:
        self._ends = np.array(sorted(ends), np.int32)
        self._end = end  # stays if no other token does
        self._token_bytes = token_bytes

    def apply(self, candidates: Candidates) -> None:
        candidates.keep_top(_LOOK)
        assert candidates.ids is not None, "the candidates are listed"
        probabilities = candidates.probabilities()
        is_end = np.isin(candidates.ids, self._ends)
        ending, continuing = probabilities[is_end].sum(), probabilities[~is_end].sum()
        if _END_FACTOR * ending * len(candidates) > continuing:
            candidates.keep(is_end)
            return
        merged = self._merge(candidates.ids.tolist(), probabilities)
        stays = is_end | (merged >= _LIKELY)
        texts = np.count_nonzero(stays & ~is_end)
        if texts == 0:
            candidates.take(np.array([self._end], np.int32), np.zeros(1, np.float32))
            return
        share = merged / merged[stays].sum()
        candidates.keep(stays & (is_end | (share >= 1.0 / (texts + 1))))

    def _merge(self, ids: list[int], probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
        """Give the probability of tokens with a common prefix to the likeliest of them."""
        texts = [self._token_bytes(id) for id in ids]
        merged = probabilities.copy()
        for first, short in enumerate(texts):
            for second, text in enumerate(texts):
                if merged[first] == 0.0:
                    break
                if first == second or merged[second] == 0.0 or not short:
                    continue
                if text.startswith(short):
                    to, of = (second, first) if merged[second] > merged[first] else (first, second)
                    merged[to] += merged[of]
                    merged[of] = 0.0
        return merged
