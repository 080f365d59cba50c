"""DeviceSampler: a backend that samples tokens on its device, and runs steps without waiting.

In: a sampling plan for each row, if the device may sample it. Out: tokens, and the logits of the
other rows. It knows neither sampler chains nor requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ingot.arrays import Floats, Ints
from ingot.backends.batch import Batch

NOT_FINITE = -1  # instead of a token: the row contains NaN or +inf
NOTHING_LEFT = -2  # instead of a token: all tokens are banned


@dataclass(frozen=True, slots=True)
class LogitEdits:
    """Logits are divided by `repeat` (negative ones multiplied), then lowered.

    Penalties do both; biases and bans only lower.
    """

    ids: Ints  # all different
    lowered: Floats  # by how much
    repeat: float


@dataclass(slots=True)  # not frozen: one is made for every token, which takes four times as long
class SamplingPlan:
    """How to sample one row: the numbers of a chain's end (ingot.sampling.fused_tail)."""

    count: int  # top-k; 1: the likeliest
    share: float  # top-p; above 1: none
    distance: float  # min-p, as a distance from the largest logit; infinite: none
    least: int  # tokens that top-p and min-p leave at least
    temperature: float
    uniform: float  # the random number, in [0, 1)
    edits: LogitEdits | None = None


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step."""

    tokens: Ints  # [rows]: a token, NOT_FINITE or NOTHING_LEFT; undefined for rows without a plan
    logits: Floats  # [rows without a plan, vocabulary]
    seconds: float | None = None  # that the device took, if it tells


class Started(Protocol):
    """A step that may still be running."""

    def result(self) -> StepResult:
        """Wait for it."""


class DeviceSampler(Protocol):
    """Samples tokens where the logits are; the caller need not wait for a step."""

    @property
    def prompt_rows(self) -> int:
        """The number of a prompt chunk's first row, after those of all decode steps."""

    def accepts(self, plan: SamplingPlan) -> bool:
        """Whether the device can follow this plan."""

    def start(self, batch: Batch, plans: Sequence[SamplingPlan | None]) -> Started:
        """Run a batch and sample a token of each wanted row; None: return its logits instead.

        An id of -1 - r stands for a token that the previous step sampled: row r of its decode, or
        from `prompt_rows` on the rows of its prompt chunk. The batch has one token of each sequence
        then.
        """


@dataclass(frozen=True, slots=True)
class Finished:
    """A step that has already run and sampled nothing."""

    logits: Floats  # [rows, vocabulary]

    def result(self) -> StepResult:
        """All of its logits."""
        return StepResult(np.empty(len(self.logits), np.int32), self.logits)
