"""Tokens that a backend chooses where the logits are, and steps that run while others go on.

Comes in: how a row's token is to be chosen, as far as a backend may be able to. Goes out: tokens,
and logits of the rows whose tokens somebody else chooses. Knows neither samplers nor texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ingot.backends.batch import Batch, Ints

Floats = NDArray[np.float32]

NOT_FINITE = -1  # instead of a token: there is NaN or +inf in the row
NOTHING_LEFT = -2  # all tokens are banned


@dataclass(frozen=True, slots=True)
class RowEdits:
    """Tokens whose logits are divided by `repeat` (negative ones multiplied), then lowered.

    So penalties do; biases and bans lower only.
    """

    ids: Ints  # all different
    lowered: Floats  # by how much
    repeat: float


@dataclass(frozen=True, slots=True)
class RowChoice:
    """The usual end of a chain of samplers (see ingot.sampling.tail), and its random number."""

    count: int  # top-k; 1: the likeliest
    share: float  # top-p; above 1: none
    distance: float  # min-p, as a distance from the largest logit; infinite: none
    least: int  # tokens that top-p and min-p leave at least
    temperature: float
    uniform: float  # in [0, 1)
    edits: RowEdits | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step found."""

    tokens: Ints  # [rows]: the chosen, NOT_FINITE or NOTHING_LEFT; nothing where none was chosen
    logits: Floats  # [rows that were not chosen, vocabulary]


class Started(Protocol):
    """A step that runs."""

    def result(self) -> Outcome:
        """Wait for it."""


class Chooser(Protocol):
    """A backend that chooses tokens by itself, and need not be waited for."""

    def accepts(self, choice: RowChoice) -> bool:
        """Whether it can choose so."""

    def start(self, batch: Batch, choices: Sequence[RowChoice | None]) -> Started:
        """Run one new token of each of some sequences; None: the row's logits are wanted.

        An id of -1 - r is the token that row r of the step started before this one chose.
        """


@dataclass(frozen=True, slots=True)
class Finished:
    """A step that has run already: nothing was chosen."""

    logits: Floats  # [rows, vocabulary]

    def result(self) -> Outcome:
        """All of its logits."""
        return Outcome(np.empty(len(self.logits), np.int32), self.logits)
