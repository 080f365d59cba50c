"""Beam search: finds likely texts by continuing several at a time.

In: the logits after each text that is kept. Out: how the texts continue, as pairs of a text and a
token; the owner of the KV cache forks sequences accordingly. Nothing is drawn at random. It does
not know the model or the cache.
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
        """The log-probability divided by a power of the length."""
        return self.logprob / float(max(len(self.tokens), 1) ** length_penalty)


@dataclass(frozen=True, slots=True)
class Move:
    """A text (its index among those kept) and the token that continues it."""

    parent: int
    token: int


class BeamSearch:
    """Keeps the `width` likeliest texts until as many have ended (`ends`: the end tokens)."""

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
        """Whether enough texts have ended, or `max_tokens` is reached."""
        return (
            len(self._ended) >= self._width
            or not self.beams
            or len(self.beams[0].tokens) >= self._max_tokens
        )

    def step(self, logits: Logits, threads: int = 1) -> list[Move]:
        """Continue by one token, given the logits of each kept text [beams, vocabulary]."""
        if len(logits) != len(self.beams):
            raise LogitsError(
                f"{len(logits)} rows of logits for {len(self.beams)} texts; there must be one each"
            )
        normalizers = self._normalizers(logits, threads)
        # Even if the best tokens end a text, `width` are left to continue.
        tops = arithmetic.top_of_rows(logits, self._width + len(self._ends), threads)
        options: list[tuple[float, int, int]] = []
        for parent, (ids, values) in enumerate(tops):
            sums = self.beams[parent].logprob + values.astype(np.float64) - normalizers[parent]
            options += zip(sums.tolist(), [parent] * len(sums), ids.tolist(), strict=True)
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
                # A text that would not have been kept does not count as ended.
                if rank < self._width:
                    self._ended.append(Beam(tokens, logprob))
            elif len(beams) < self._width:
                moves.append(Move(parent, token))
                beams.append(Beam((*tokens, token), logprob))
        self.beams = beams
        return moves

    def best(self) -> list[Beam]:
        """The texts found, best first: those that ended, then the unfinished ones."""

        def by_score(beam: Beam) -> float:
            return -beam.score(self._length_penalty)

        ended = sorted(self._ended, key=by_score)[: self._width]
        unfinished = sorted(self.beams, key=by_score)[: self._width - len(ended)]
        return ended + unfinished
