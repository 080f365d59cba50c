"""Beam search: the likeliest texts, several at a time.

Comes in: the logits after each of the texts that are kept. Goes out: how the texts go on, as
pairs of a text and a token, which whoever holds the cache follows by copying sequences. It is
a way to decode, not a sampler: no draw is made. It does not know the model or the cache.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingot import _native
from ingot.arrays import Logits
from ingot.errors import LogitsError, SamplingError
from ingot.sampling import arithmetic


@dataclass(frozen=True, slots=True)
class Beam:
    """A text: its tokens and the sum of their log-probabilities."""

    tokens: tuple[int, ...] = ()
    logprob: float = 0.0

    def score(self, length_penalty: float) -> float:
        """The log-probability, in relation to a power of the length."""
        return self.logprob / float(max(len(self.tokens), 1) ** length_penalty)


@dataclass(frozen=True, slots=True)
class Move:
    """A text (its place among those kept) and the token it goes on with."""

    parent: int
    token: int


class BeamSearch:
    """Keeps the `width` likeliest texts until as many have ended."""

    def __init__(
        self,
        width: int,
        ends: Collection[int],
        *,
        max_tokens: int,
        length_penalty: float = 1.0,
    ) -> None:
        if width < 1:
            raise SamplingError("beam width", width, "a whole number of at least 1")
        self._width, self._ends = width, frozenset(ends)
        self._max_tokens, self._length_penalty = max_tokens, length_penalty
        self.beams: list[Beam] = [Beam()]
        self._ended: list[Beam] = []

    @property
    def done(self) -> bool:
        """Whether enough texts have ended, or the time has come."""
        return (
            len(self._ended) >= self._width
            or not self.beams
            or len(self.beams[0].tokens) >= self._max_tokens
        )

    def step(self, logits: Logits, threads: int = 1) -> list[Move]:
        """Go on by one token, from the logits of each kept text [beams, vocabulary]."""
        if len(logits) != len(self.beams):
            raise LogitsError(
                f"{len(logits)} rows of logits do not go with {len(self.beams)} texts"
            )
        normalizers = self._normalizers(logits, threads)
        # Whatever ends a text among the best, `width` are left to go on.
        count = min(self._width + len(self._ends), logits.shape[1])
        tops = arithmetic.top_of_rows(logits, np.full(len(logits), count, np.int32), threads)
        options: list[tuple[float, int, int]] = []
        for parent, top in enumerate(tops):
            if isinstance(top, LogitsError):
                raise top
            assert top is not None, "a count above 0 was asked for"
            sums = self.beams[parent].logprob + top[1].astype(np.float64) - normalizers[parent]
            options += zip(sums.tolist(), [parent] * len(sums), top[0].tolist(), strict=True)
        options.sort(key=lambda option: (-option[0], option[1], option[2]))
        return self._keep(options)

    def _normalizers(self, logits: Logits, threads: int) -> NDArray[np.float64]:
        sums = np.empty((len(logits), 2))
        _native.sum_rows(np.ascontiguousarray(logits), sums, threads)
        return sums[:, 0] + arithmetic.logs(np.ascontiguousarray(sums[:, 1]))

    def _keep(self, options: list[tuple[float, int, int]]) -> list[Move]:
        moves: list[Move] = []
        beams: list[Beam] = []
        for rank, (logprob, parent, token) in enumerate(options):
            tokens = self.beams[parent].tokens
            if token in self._ends:
                # One that would not have been kept as a text does not count as an end.
                if rank < self._width:
                    self._ended.append(Beam(tokens, logprob))
            elif len(beams) < self._width:
                moves.append(Move(parent, token))
                beams.append(Beam((*tokens, token), logprob))
        self.beams = beams
        return moves

    def best(self) -> list[Beam]:
        """The texts found, best first: those that ended, then what is still going on."""

        def by_score(beam: Beam) -> float:
            return -beam.score(self._length_penalty)

        ended = sorted(self._ended, key=by_score)[: self._width]
        going_on = sorted(self.beams, key=by_score)[: self._width - len(ended)]
        return ended + going_on
