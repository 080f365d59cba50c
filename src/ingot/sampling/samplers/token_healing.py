"""Token healing: the first tokens of a text replace the last token of the prompt.

A prompt may end in the middle of what the model knows as one token ("http:" before "//").
The last token is removed, and the text continues with any token that begins with its bytes,
or with tokens that spell them. After these bytes the sampler does nothing.
"""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Self

import numpy as np

from ingot.arrays import Ints
from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler


class TokenIndex:
    """The tokens of a vocabulary, sorted by their bytes."""

    def __init__(self, by_bytes: Mapping[bytes, int]) -> None:
        self._texts = sorted(by_bytes)
        self._by_bytes = by_bytes
        self.text_of = {id: text for text, id in by_bytes.items()}

    def longer(self, begun: bytes) -> list[int]:
        """The tokens that begin with `begun`, or are equal to it."""
        first = last = bisect_left(self._texts, begun)
        while last < len(self._texts) and self._texts[last].startswith(begun):
            last += 1
        return [self._by_bytes[text] for text in self._texts[first:last]]

    def fitting(self, begun: bytes) -> Ints:
        """The tokens that begin with `begun`, or that it begins with."""
        shorter = [self._by_bytes.get(begun[:size]) for size in range(1, len(begun))]
        parts = [id for id in shorter if id is not None]
        return np.array(self.longer(begun) + parts, np.int32)


class TokenHealing(Sampler):
    """Bans the tokens that do not spell the bytes that were removed from the prompt."""

    cuts = False

    def __init__(self, begun: bytes, index: TokenIndex) -> None:
        self._begun, self._index = begun, index
        self.reset()

    def reset(self) -> None:
        self._left = self._begun

    def clone(self) -> Self:
        copy = type(self)(self._begun, self._index)
        copy._left = self._left
        return copy

    @property
    def left(self) -> bytes:
        """The bytes that the next tokens must spell."""
        return self._left

    def apply(self, candidates: Candidates) -> None:
        if not self._left:
            return
        fitting = self._index.fitting(self._left)
        stays = np.isin(candidates.candidate_ids(), fitting)
        candidates.logits[~stays] = -np.inf

    def accept(self, token: int) -> None:
        written = self._index.text_of.get(token, b"")
        self._left = self._left[len(written) :]
