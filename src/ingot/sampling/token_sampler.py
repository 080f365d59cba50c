"""Sample a batch: a row of logits for each request in, a token for each request out.

The usual ends of chains run in one native call for all requests (fused_tail.py). An error in one
request (NaN, a processor's error, all tokens banned) is the result of that request and does not
affect the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ingot.arrays import Logits
from ingot.errors import IngotError, LogitsError
from ingot.sampling.candidates import Candidates
from ingot.sampling.chain import SamplerChain
from ingot.sampling.fused_tail import TailRequest, sample_tails
from ingot.sampling.logprobs import TokenLogprobs, candidate_logprobs, row_logprobs
from ingot.sampling.params import SamplingParams


@dataclass(frozen=True, slots=True)
class TokenSampler:
    """The sampler chain of a request, and the log-probabilities it wants of each token."""

    chain: SamplerChain
    logprobs: bool = False  # of the model
    chain_logprobs: bool = False  # of the candidates after the chain
    count: int = 0  # alternatives to list

    @classmethod
    def of(cls, chain: SamplerChain, params: SamplingParams) -> "TokenSampler":
        """What the parameters want to know."""
        wanted = params.logprobs or params.n_probs > 0
        return cls(chain, wanted, wanted and params.post_sampling_probs, params.n_probs)

    def sample(self, logits: Logits) -> "SampledToken":
        """Sample from logits [1, vocabulary], which are changed."""
        result = sample_tokens([self], logits)[0]
        if isinstance(result, IngotError):
            raise result
        return result


class SampledToken(NamedTuple):
    """A token, and its log-probabilities if they were asked for."""

    token: int
    logprobs: TokenLogprobs | None = None
    chain_logprobs: TokenLogprobs | None = None


def sample_tokens(
    requests: Sequence[TokenSampler], logits: Logits, threads: int = 1
) -> list[SampledToken | IngotError]:
    """Sample a token from each row of logits [requests, vocabulary].

    The rows are changed. The tokens are not accepted yet: that is `chain.accept(token)`.
    """
    if len(requests) != len(logits):
        raise LogitsError(f"{len(requests)} requests for {len(logits)} rows of logits")
    if logits.dtype != np.float32 or not logits.flags.c_contiguous:
        raise LogitsError("the logits must be a contiguous array of 32-bit floats")
    before = [row.copy() if r.logprobs else None for r, row in zip(requests, logits, strict=True)]
    results: dict[int, SampledToken | IngotError] = {}
    tails: list[TailRequest] = []
    for number, (request, row) in enumerate(zip(requests, logits, strict=True)):
        chain = request.chain
        try:
            if chain.tail is None or request.chain_logprobs:
                candidates = chain.apply(row)
                results[number] = _sampled(request, candidates.token, before[number], candidates)
            else:
                chain.edit(row)
                tails.append(TailRequest(number, chain.tail, chain.seed, chain.generated))
        except IngotError as error:
            results[number] = error
    tokens = sample_tails(tails, logits, threads) if tails else []
    for tail, token in zip(tails, tokens, strict=True):
        results[tail.row] = (
            _sampled(requests[tail.row], token, before[tail.row])
            if isinstance(token, int)
            else token
        )
    return [results[number] for number in range(len(requests))]


def _sampled(
    request: TokenSampler, token: int, row: Logits | None, candidates: Candidates | None = None
) -> SampledToken:
    """The token with its log-probabilities; `row` is that before the chain."""
    left = candidates if request.chain_logprobs else None
    return SampledToken(
        token,
        None if row is None else row_logprobs(row, token, request.count),
        None if left is None else candidate_logprobs(left, request.count),
    )
