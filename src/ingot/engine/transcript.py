"""Transcript: the tokens of a text as they are chosen, the text they make, and its end.

Comes in: one choice at a time. Goes out: the text that may be shown by then. It knows the chain
that chooses and the conditions of an end, and nothing of models, caches or readers.
"""

import numpy as np
from numpy.typing import NDArray

from ingot.sampling import (
    ChainBuilder,
    FinishReason,
    SampledToken,
    SamplingParams,
    StopChecker,
    TokenLogprobs,
    TokenSampler,
)
from ingot.tokenizer import Tokenizer


class Transcript:
    """A text and how it is chosen."""

    def __init__(
        self,
        params: SamplingParams,
        prompt: NDArray[np.int32],
        builder: ChainBuilder,
        tokenizer: Tokenizer,
        begun: bytes = b"",
    ) -> None:
        """`begun` are bytes of the prompt that the text begins with (see healing)."""
        self.params = params
        self.chain = builder.build(params, prompt, begun)
        self.sampler = TokenSampler.of(self.chain, params)
        self.sampled: list[SampledToken] = []
        self.pieces: list[str] = []
        self.finish_reason: FinishReason | None = "length" if params.max_tokens == 0 else None
        self.stopped_by: str | int | None = None
        self.ending: SampledToken | None = None  # the token that ended it, which is no part of it
        self._stop = StopChecker(params, tokenizer, skip_special=False, skip_bytes=len(begun))

    @property
    def is_open(self) -> bool:
        """Whether more may come."""
        return self.finish_reason is None

    @property
    def is_late(self) -> bool:
        """Whether its time is over."""
        return self._stop.is_late

    @property
    def text(self) -> str:
        """What may be shown so far."""
        return "".join(self.pieces)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The tokens so far, without one that ended the text."""
        return tuple(choice.token for choice in self.sampled[:])

    @property
    def logprobs(self) -> tuple[TokenLogprobs, ...]:
        """Those of the tokens by the model, if they were asked for."""
        found = (choice.logprobs for choice in self.sampled[:])
        return tuple(logprobs for logprobs in found if logprobs is not None)

    @property
    def chain_logprobs(self) -> tuple[TokenLogprobs, ...]:
        """And those behind the samplers."""
        found = (choice.chain_logprobs for choice in self.sampled[:])
        return tuple(logprobs for logprobs in found if logprobs is not None)

    def push(self, choice: SampledToken) -> str:
        """Add a token: the text that it brings."""
        taken = self._stop.tokens
        piece = self._stop.push(choice.token)
        if self._stop.tokens > taken:  # not one that ended the text
            self.sampled.append(choice)
            self.chain.accept(choice.token)
        else:
            self.ending = choice
        text = piece.text
        if piece.finished is not None:
            self.finish_reason = piece.finished
            self.stopped_by = piece.stopped_by
        elif self.chain.is_complete:
            self.finish_reason = "stop"
            text += self._stop.finish()
        if text:
            self.pieces.append(text)
        return text

    def end(self, reason: FinishReason) -> str:
        """End it for a reason that others know: the text held back so far."""
        self.finish_reason = reason
        rest = self._stop.finish()
        if rest:
            self.pieces.append(rest)
        return rest

    def forced_tokens(self) -> list[int]:
        """The tokens that must come next by a grammar, unless their probabilities are wanted."""
        if self.params.grammar is None or self.sampler.logprobs:
            return []
        return self.chain.forced_tokens()
