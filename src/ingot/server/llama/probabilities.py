"""Token probabilities in llama-server's form.

They are the model's own, as logarithms, or those after the samplers, as plain probabilities.
"""

import math
from collections.abc import Iterable, Iterator

from pydantic import BaseModel

from ingot.sampling import SampledToken
from ingot.tokenizer import Tokenizer

_MIN_LOGPROB = -3.4028234663852886e38  # for minus infinity, which JSON lacks


class TokenText(BaseModel):
    """A token: its id, its text, its bytes."""

    id: int
    token: str
    bytes: list[int]


class Logprob(TokenText):
    """A token and its logprob."""

    logprob: float


class TokenLogprobs(Logprob):
    """A sampled token, with the most likely tokens in its place."""

    top_logprobs: list[Logprob]


class Prob(TokenText):
    """A token and its probability after the samplers."""

    prob: float


class TokenProbs(Prob):
    """A sampled token, with the most likely tokens in its place."""

    top_probs: list[Prob]


Probabilities = list[TokenLogprobs] | list[TokenProbs]


def probabilities(
    tokenizer: Tokenizer, choices: Iterable[SampledToken], *, after_samplers: bool
) -> Iterator[dict[str, object]]:
    """The probabilities of sampled tokens, as `Probabilities` describes them.

    Tokens without probabilities are left out.
    """

    def described(token: int, logprob: float) -> dict[str, object]:
        content = tokenizer.token_bytes(token)
        text = content.decode("utf-8", "ignore")
        value = (
            {"prob": math.exp(logprob)}
            if after_samplers
            else {"logprob": max(logprob, _MIN_LOGPROB)}
        )
        return {"id": token, "token": text, "bytes": list(content), **value}

    top_name = "top_probs" if after_samplers else "top_logprobs"
    for choice in choices:
        found = choice.chain_logprobs if after_samplers else choice.logprobs
        if found is not None:
            top = [described(token, value) for token, value in found.top]
            yield {**described(found.token, found.logprob), top_name: top}
