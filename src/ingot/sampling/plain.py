"""Choices that a backend may make by itself: the usual tail, behind penalties at most.

Comes in: a request's part in a step. Goes out: what a backend needs to choose as the chain would,
to the bit, or None where only the chain can. Everything that hangs on the seed or on the text so
far is worked out here.
"""

from ingot import _native
from ingot.backends.choosing import RowChoice, RowPenalties
from ingot.errors import LogitsError
from ingot.sampling.chain import SamplerChain
from ingot.sampling.samplers.draw import DRAW
from ingot.sampling.samplers.penalties import Penalties
from ingot.sampling.step import Choosing
from ingot.sampling.tail import chosen_token


def plain_choice(choosing: Choosing, ahead: int = 0) -> RowChoice | None:
    """How the next token is chosen; `ahead`: the one so many tokens behind it.

    What depends on tokens that are not there yet cannot be known ahead.
    """
    chain = choosing.chain
    tail, editors = chain.tail, chain.editors
    if tail is None or choosing.logprobs or choosing.chain_logprobs:
        return None
    penalties = None
    if editors:
        penalizing = editors[0]
        if ahead or len(editors) > 1 or not isinstance(penalizing, Penalties):
            return None
        penalties = _penalties(penalizing, chain)
    return RowChoice(
        tail.count,
        tail.share,
        tail.distance,
        tail.least,
        tail.temperature,
        _native.uniform_at(chain.seed, chain.generated + ahead, DRAW),
        penalties,
    )


def require_token(token: int) -> int:
    """What a backend has chosen; LogitsError if it could not."""
    found = chosen_token(token)
    if isinstance(found, LogitsError):
        raise found
    return found


def _penalties(sampler: Penalties, chain: SamplerChain) -> RowPenalties:
    ids, lowered = sampler.lowered(chain.token_ids)
    return RowPenalties(ids, lowered, float(sampler.divisor))
