"""The probabilities of tokens, in llama-server's form.

They are the model's own, as logarithms, or those behind the samplers, as they are.
"""

import math
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from ingot.sampling import SampledToken
from ingot.tokenizer import Tokenizer

_LEAST = -3.4028234663852886e38  # in place of minus infinity, which JSON lacks


class TokenText(BaseModel):
    """A token: its number, its text, its bytes."""

    id: int
    token: str
    bytes: list[int]


class Logprob(TokenText):
    """A token and the logarithm of its probability."""

    logprob: float


class TokenLogprobs(Logprob):
    """A token that came, and the likeliest in its place."""

    top_logprobs: list[Logprob]


class Prob(TokenText):
    """A token and its probability behind the samplers."""

    prob: float


class TokenProbs(Prob):
    """A token that came, and the likeliest in its place."""

    top_probs: list[Prob]


Probabilities = list[TokenLogprobs] | list[TokenProbs]


def probabilities(
    tokenizer: Tokenizer, choices: Iterable[SampledToken], *, behind_samplers: bool
) -> Probabilities:
    """Those of tokens that were chosen; a token of which nothing is known is left out."""

    def told(token: int) -> dict[str, Any]:
        content = tokenizer.token_bytes(token)
        return {
            "id": token,
            "token": content.decode("utf-8", "ignore"),
            "bytes": list(content),
        }

    if behind_samplers:
        return [
            TokenProbs(
                **told(found.token),
                prob=math.exp(found.logprob),
                top_probs=[Prob(**told(token), prob=math.exp(value)) for token, value in found.top],
            )
            for choice in choices
            if (found := choice.chain_logprobs) is not None
        ]
    return [
        TokenLogprobs(
            **told(found.token),
            logprob=max(found.logprob, _LEAST),
            top_logprobs=[
                Logprob(**told(token), logprob=max(value, _LEAST)) for token, value in found.top
            ],
        )
        for choice in choices
        if (found := choice.logprobs) is not None
    ]
