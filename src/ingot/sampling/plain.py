"""Choices that a backend may make by itself: the usual tail, behind penalties or biases at most.

Comes in: a request's part in a step. Goes out: what a backend needs to choose as the chain would,
to the bit, or None where only the chain can. Everything that hangs on the seed or on the text so
far is worked out here.
"""

from ingot import _native
from ingot.backends.choosing import RowChoice
from ingot.errors import LogitsError
from ingot.sampling.samplers.draw import DRAW
from ingot.sampling.step import Choosing
from ingot.sampling.tail import chosen_token


def plain_choice(choosing: Choosing, ahead: int = 0) -> RowChoice | None:
    """How the next token is chosen; `ahead`: the one so many tokens behind it.

    What depends on tokens that are not there yet cannot be known ahead.
    """
    chain = choosing.chain
    tail, editors = chain.tail, chain.editors
    if tail is None or len(editors) > 1 or choosing.logprobs or choosing.chain_logprobs:
        return None
    edits = None
    if editors:
        edits = editors[0].edits(chain.token_ids, chain.generated, ahead)
        if edits is None:
            return None
    return RowChoice(
        tail.count,
        tail.share,
        tail.distance,
        tail.least,
        tail.temperature,
        _native.uniform_at(chain.seed, chain.generated + ahead, DRAW),
        edits,
    )


def require_token(token: int) -> int:
    """What a backend has chosen; LogitsError if it could not."""
    found = chosen_token(token)
    if isinstance(found, LogitsError):
        raise found
    return found
