"""Candidates: the tokens that may come next, passed along a sampler chain.

In: one row of logits, which samplers may change in place. Until the first cut, the candidates are
the whole vocabulary (`ids` is None and `logits` is the row itself); after it, `ids` and `logits`
are new, short arrays. Cuts never sort the whole vocabulary or compute a softmax of it. A logit of
-inf is a banned token.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot import _native
from ingot.arrays import Ints, Logits
from ingot.sampling import arithmetic


class Candidates:
    """The candidates for one token of one text."""

    __slots__ = ("generated", "ids", "logits", "row", "sampled", "seed", "token_ids")

    def __init__(self, row: Logits, token_ids: Ints, *, seed: int = 0, generated: int = 0) -> None:
        self.row = row  # [vocabulary]
        self.token_ids = token_ids  # the text so far, prompt included
        self.generated = generated  # how many of them were generated
        self.seed = seed
        self.ids: Ints | None = None
        self.logits = row
        self.sampled: int | None = None  # an index into `logits`

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def token(self) -> int:
        """The sampled token."""
        assert self.sampled is not None, "no sampler has picked a token"
        return self.sampled if self.ids is None else int(self.ids[self.sampled])

    def candidate_ids(self) -> Ints:
        """The ids of the candidates, even if they are the whole vocabulary."""
        return np.arange(len(self.row), dtype=np.int32) if self.ids is None else self.ids

    def probabilities(self) -> NDArray[np.float64]:
        """The softmax of the candidates' logits."""
        return arithmetic.softmax(self.logits)

    def uniform(self, purpose: int) -> float:
        """A random number in [0, 1), a function of the seed, the position and the purpose."""
        return _native.uniform_at(self.seed, self.generated, purpose)

    def take(self, ids: Ints, logits: Logits) -> None:
        """Keep only these candidates."""
        self.ids, self.logits = ids, logits

    def keep(self, where: NDArray[np.bool_] | NDArray[np.intp]) -> None:
        """Keep the candidates at these indices (in this order) or under this mask."""
        kept: NDArray[Any] = np.flatnonzero(where) if where.dtype == np.bool_ else where
        ids = kept.astype(np.int32) if self.ids is None else self.ids[kept]
        self.take(ids, self.logits[kept])

    def keep_top(self, count: int) -> None:
        """Keep the likeliest, largest first, ties by id."""
        if self.ids is None:
            self.take(*arithmetic.top(self.row, count))
            return
        allowed = np.count_nonzero(self.logits > -np.inf)
        if allowed == 0:
            raise arithmetic.nothing_left()
        self.keep(np.lexsort((self.ids, -self.logits))[: min(count, allowed)])

    def keep_near_top(self, distance: float, least: int = 1) -> None:
        """Keep those at most `distance` below the largest logit, and at least `least`."""
        if distance < 0.0:
            self.keep_top(least)
            return
        if self.ids is None:
            ids, logits = arithmetic.near_top(self.row, distance)
            if len(ids) >= least:
                self.take(ids, logits)
                return
        else:
            largest = self.logits.max()
            near = self.logits >= np.float32(float(largest) - distance)
            if largest > -np.inf and np.count_nonzero(near) >= least:
                self.keep(near)
                return
        self.keep_top(least)

    def find(self, ids: Ints) -> tuple[Ints | NDArray[np.intp], slice | NDArray[np.intp]]:
        """The indices of tokens (all different) in `logits`, and which of the tokens these are."""
        if self.ids is None:
            return ids, slice(None)
        _, where, which = np.intersect1d(self.ids, ids, assume_unique=True, return_indices=True)
        return where, which

    def whole_row(self) -> Logits:
        """The row of the whole vocabulary, in which tokens that were cut are banned."""
        if self.ids is not None:
            self.row.fill(-np.inf)
            self.row[self.ids] = self.logits
        return self.row
