"""One step: a row of logits for each request in, a token for each request out.

The part that reads whole vocabularies is one native call for all requests; the rest works on
the few candidates of each. What goes wrong in one request (NaN, a processor's error, nothing
left to choose) is that request's result and leaves the others alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ingot.errors import IngotError
from ingot.sampling import arithmetic
from ingot.sampling.arithmetic import Logits
from ingot.sampling.candidates import Candidates
from ingot.sampling.chain import SamplerChain
from ingot.sampling.logprobs import TokenLogprobs, candidate_logprobs, row_logprobs


@dataclass(frozen=True, slots=True)
class Choosing:
    """A request's part in a step: its chain, and what it wants to know about the choice."""

    chain: SamplerChain
    logprobs: bool = False  # of the model
    chain_logprobs: bool = False  # of what the chain left
    count: int = 0  # alternatives to list


@dataclass(frozen=True, slots=True)
class Choice:
    """A token, and its log-probabilities if they were asked for."""

    token: int
    logprobs: TokenLogprobs | None = None
    chain_logprobs: TokenLogprobs | None = None


def choose(
    requests: Sequence[Choosing], logits: Logits, threads: int = 1
) -> list[Choice | IngotError]:
    """Choose a token for each row of logits [requests, vocabulary].

    The rows are changed. The tokens are not accepted yet: that is `chain.accept(token)`.
    """
    results: list[Choice | IngotError | None] = [None] * len(requests)
    before = [
        row.copy() if request.logprobs else row
        for request, row in zip(requests, logits, strict=True)
    ]
    candidates = [request.chain.begin(row) for request, row in zip(requests, logits, strict=True)]
    wanted = np.zeros(len(requests), np.int32)
    for i, request in enumerate(requests):
        try:
            wanted[i] = min(request.chain.apply_until_top(candidates[i]), logits.shape[1])
        except IngotError as error:
            results[i] = error
    tops = (
        arithmetic.top_of_rows(logits, wanted, threads) if wanted.any() else [None] * len(requests)
    )
    for i, (request, top) in enumerate(zip(requests, tops, strict=True)):
        if results[i] is not None:
            continue
        if isinstance(top, IngotError):
            results[i] = top
            continue
        try:
            if top is not None:
                candidates[i].take(*top)
            request.chain.apply_from_top(candidates[i])
            results[i] = _choice(request, candidates[i], before[i])
        except IngotError as error:
            results[i] = error
    return [result for result in results if result is not None]


def _choice(request: Choosing, candidates: Candidates, row: Logits) -> Choice:
    token = candidates.token
    return Choice(
        token,
        row_logprobs(row, token, request.count) if request.logprobs else None,
        candidate_logprobs(candidates, request.count) if request.chain_logprobs else None,
    )
