"""The usual end of a sampler chain, fused into one native call for all requests of a step.

Top-k, then optionally top-p, min-p and temperature, then the draw: most chains end like this, and
the default chain is nothing else. Native code gives the same bits as the samplers, without Python
objects in between (native/sampling/tail.cpp).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ingot import _native
from ingot.arrays import Logits
from ingot.backends.device_sampler import NOT_FINITE
from ingot.errors import LogitsError
from ingot.sampling import arithmetic
from ingot.sampling.sampler import Sampler
from ingot.sampling.samplers.cuts import MinP, TopK, TopP
from ingot.sampling.samplers.draw import DRAW, Draw, Greedy
from ingot.sampling.samplers.temperature import Temperature

_NO_SHARE = 2.0


@dataclass(frozen=True, slots=True)
class FusedTail:
    """The parameters of the samplers that are fused."""

    count: int
    share: float = _NO_SHARE
    distance: float = math.inf
    temperature: float = 1.0
    least: int = 1

    @classmethod
    def of(cls, samplers: Sequence[Sampler]) -> "FusedTail | None":
        """Fuse samplers; None if they are not the usual end of a chain."""
        if [type(sampler) for sampler in samplers] == [Greedy]:
            return cls(count=1)
        if not samplers or not isinstance(samplers[0], TopK):
            return None
        tail = cls(samplers[0].count)
        leasts, rest = set(), list(samplers[1:])
        if rest and isinstance(top_p := rest[0], TopP):
            tail = replace(tail, share=top_p.share)
            leasts.add(top_p.least)
            rest.pop(0)
        if rest and isinstance(min_p := rest[0], MinP):
            tail = replace(tail, distance=-arithmetic.log(min_p.share))
            leasts.add(min_p.least)
            rest.pop(0)
        if rest and isinstance(temperature := rest[0], Temperature):
            tail = replace(tail, temperature=temperature.temperature)
            rest.pop(0)
        if [type(sampler) for sampler in rest] != [Draw] or len(leasts) > 1:
            return None
        return replace(tail, least=max(leasts, default=1))


@dataclass(frozen=True, slots=True)
class TailRequest:
    """A row of logits, how to sample it, and what its random number depends on."""

    row: int
    tail: FusedTail
    seed: int
    generated: int


def sample_tails(
    requests: Sequence[TailRequest], logits: Logits, threads: int
) -> list[int | LogitsError]:
    """A token for each request, from its row of the logits [rows, vocabulary]."""
    tails = [request.tail for request in requests]
    numbers = [
        (t.share, t.distance, t.temperature, _native.uniform_at(r.seed, r.generated, DRAW))
        for r, t in zip(requests, tails, strict=True)
    ]
    tokens = np.empty(len(requests), np.int32)
    _native.sample_rows(
        logits,
        np.array([request.row for request in requests], np.int32),
        np.array([min(tail.count, logits.shape[1]) for tail in tails], np.int32),
        np.array([tail.least for tail in tails], np.int32),
        np.array(numbers),
        tokens,
        threads,
    )
    return [token_or_error(token) for token in tokens.tolist()]


def token_or_error(token: int) -> int | LogitsError:
    """The token, or why there is none."""
    if token >= 0:
        return token
    return arithmetic.not_finite() if token == NOT_FINITE else arithmetic.nothing_left()
