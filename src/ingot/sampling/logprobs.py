"""Log-probabilities of prompt tokens, of a sampled token and of its alternatives.

They are those of the model (before any sampler) or of the candidates after a sampler chain.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingot import _native
from ingot.arrays import Ints, Logits
from ingot.config import config
from ingot.errors import LogitsError
from ingot.sampling import arithmetic
from ingot.sampling.candidates import Candidates


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A token's log-probability and the likeliest tokens in its place, likeliest first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


def logprobs_of(
    logits: Logits, ids: Sequence[int] | Ints, threads: int | None = None
) -> NDArray[np.float64]:
    """The log-probability of one token in each row of logits [rows, vocabulary]."""
    tokens = np.asarray(ids, np.int64)
    if logits.ndim != 2 or tokens.shape != (len(logits),):
        raise LogitsError(f"{len(tokens)} tokens for logits of shape {logits.shape}")
    if len(tokens) and not 0 <= tokens.min() <= tokens.max() < logits.shape[1]:
        raise LogitsError(f"a token id is outside the vocabulary of {logits.shape[1]} tokens")
    sums = np.empty((len(logits), 2))
    _native.sum_rows(
        np.ascontiguousarray(logits), sums, config().threads if threads is None else threads
    )
    if np.isnan(sums).any():
        raise LogitsError("the logits contain NaN or +inf, or a row in which all tokens are banned")
    largest, totals = sums[:, 0], sums[:, 1]
    sampled = logits[np.arange(len(tokens)), tokens].astype(np.float64)
    return (sampled - largest) - arithmetic.logs(np.ascontiguousarray(totals))


def row_logprobs(row: Logits, token: int, count: int) -> TokenLogprobs:
    """A token's log-probability in a row, and the `count` likeliest tokens."""
    normalizer = arithmetic.log_sum_exp(row)
    top: list[tuple[int, float]] = []
    if count:
        ids, logits = arithmetic.top(row, count)
        values = (logits.astype(np.float64) - normalizer).tolist()
        top = list(zip(ids.tolist(), values, strict=True))
    return TokenLogprobs(token, float(row[token]) - normalizer, tuple(top))


def candidate_logprobs(candidates: Candidates, count: int) -> TokenLogprobs:
    """The same for the candidates after a chain."""
    assert candidates.sampled is not None, "a token was sampled"
    logits, ids = candidates.logits, candidates.candidate_ids()
    normalizer = arithmetic.log_sum_exp(logits)
    order = np.lexsort((ids, -logits))[:count]
    values = (logits[order].astype(np.float64) - normalizer).tolist()
    top = [pair for pair in zip(ids[order].tolist(), values, strict=True) if pair[1] > -np.inf]
    logprob = float(logits[candidates.sampled]) - normalizer
    return TokenLogprobs(candidates.token, logprob, tuple(top))
