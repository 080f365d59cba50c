"""One step: a row of logits for each request in, a token for each request out.

Chains that end as most do run their ends in one native call for all requests together. What
goes wrong in one request (NaN, a processor's error, nothing left to choose) is that request's
result and leaves the others alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ingot.errors import IngotError, LogitsError
from ingot.sampling.arithmetic import Logits
from ingot.sampling.candidates import Candidates
from ingot.sampling.chain import SamplerChain
from ingot.sampling.logprobs import TokenLogprobs, candidate_logprobs, row_logprobs
from ingot.sampling.params import SamplingParams
from ingot.sampling.tail import TailRequest, choose_tails


@dataclass(frozen=True, slots=True)
class Choosing:
    """A request's part in a step: its chain, and what it wants to know about the choice."""

    chain: SamplerChain
    logprobs: bool = False  # of the model
    chain_logprobs: bool = False  # of what the chain left
    count: int = 0  # alternatives to list

    @classmethod
    def of(cls, chain: SamplerChain, params: SamplingParams) -> "Choosing":
        """What the parameters want to know."""
        wanted = params.logprobs or params.n_probs > 0
        return cls(chain, wanted, wanted and params.post_sampling_probs, params.n_probs)

    def choose(self, logits: Logits) -> "Choice":
        """Choose for this request alone, from logits [1, vocabulary], which are changed."""
        result = choose([self], logits)[0]
        if isinstance(result, IngotError):
            raise result
        return result


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
    if len(requests) != len(logits):
        raise LogitsError(f"{len(requests)} requests do not go with {len(logits)} rows of logits")
    if logits.dtype != np.float32 or not logits.flags.c_contiguous:
        raise LogitsError("the rows of logits must be 32-bit floats, one after the other")
    before = [row.copy() if r.logprobs else None for r, row in zip(requests, logits, strict=True)]
    results: dict[int, Choice | IngotError] = {}
    tails: list[TailRequest] = []
    for number, (request, row) in enumerate(zip(requests, logits, strict=True)):
        chain = request.chain
        try:
            if chain.tail is None or request.chain_logprobs:
                candidates = chain.apply(row)
                results[number] = _choice(request, candidates.token, before[number], candidates)
            else:
                chain.edit(row)
                tails.append(TailRequest(number, chain.tail, chain.seed, chain.generated))
        except IngotError as error:
            results[number] = error
    chosen = choose_tails(tails, logits, threads) if tails else []
    for tail, token in zip(tails, chosen, strict=True):
        results[tail.row] = (
            _choice(requests[tail.row], token, before[tail.row])
            if isinstance(token, int)
            else token
        )
    return [results[number] for number in range(len(requests))]


def _choice(
    request: Choosing, token: int, row: Logits | None, candidates: Candidates | None = None
) -> Choice:
    """The choice with what was asked about it; `row` is that before the chain."""
    left = candidates if request.chain_logprobs else None
    return Choice(
        token,
        None if row is None else row_logprobs(row, token, request.count),
        None if left is None else candidate_logprobs(left, request.count),
    )
