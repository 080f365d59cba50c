"""Sampling plans for a device, for fused chains with at most penalties or biases.

In: a request's token sampler. Out: what a device needs to sample the same token as the chain, or
None if only the chain can. What depends on the seed or on the text so far is computed here.
"""

from ingot import _native
from ingot.backends.device_sampler import SamplingPlan
from ingot.errors import LogitsError
from ingot.sampling.fused_tail import token_or_error
from ingot.sampling.samplers.draw import DRAW
from ingot.sampling.token_sampler import TokenSampler


def sampling_plan(sampler: TokenSampler, ahead: int = 0) -> SamplingPlan | None:
    """How to sample the next token; with `ahead`, the one that many tokens after it.

    None if it depends on tokens that are not known yet.
    """
    chain = sampler.chain
    tail, editors = chain.tail, chain.editors
    if tail is None or len(editors) > 1 or sampler.logprobs or sampler.chain_logprobs:
        return None
    edits = None
    if editors:
        edits = editors[0].edits(chain.token_ids, chain.generated, ahead)
        if edits is None:
            return None
    return SamplingPlan(
        tail.count,
        tail.share,
        tail.distance,
        tail.least,
        tail.temperature,
        _native.uniform_at(chain.seed, chain.generated + ahead, DRAW),
        edits,
    )


def require_token(token: int) -> int:
    """The token that a device has sampled; LogitsError if it could not."""
    found = token_or_error(token)
    if isinstance(found, LogitsError):
        raise found
    return found
