"""Transcript: the tokens of a text as they are sampled, the text they make, and its end.

In: one sampled token at a time. Out: the text that may be shown by then. It knows the sampler chain
and the stop conditions, but no model, cache or reader.
"""

from ingot.arrays import Ints
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


class Written:
    """What is written so far of a text."""

    def __init__(self) -> None:
        self.sampled: list[SampledToken] = []
        self.pieces: list[str] = []
        self.finish_reason: FinishReason | None = None

    @property
    def text(self) -> str:
        """The text so far, without what may become a stop sequence."""
        return "".join(self.pieces)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The tokens so far, without one that ended the text."""
        return tuple(each.token for each in self.sampled[:])

    @property
    def logprobs(self) -> tuple[TokenLogprobs, ...]:
        """Log-probabilities of the tokens by the model, if they were asked for."""
        found = (each.logprobs for each in self.sampled[:])
        return tuple(logprobs for logprobs in found if logprobs is not None)

    @property
    def chain_logprobs(self) -> tuple[TokenLogprobs, ...]:
        """Log-probabilities of the tokens after the samplers, if they were asked for."""
        found = (each.chain_logprobs for each in self.sampled[:])
        return tuple(logprobs for logprobs in found if logprobs is not None)


class Transcript(Written):
    """A text and its sampler."""

    def __init__(
        self,
        params: SamplingParams,
        prompt: Ints,
        builder: ChainBuilder,
        tokenizer: Tokenizer,
        begun: bytes = b"",
    ) -> None:
        """`begun` are bytes at the end of the prompt that the text begins with (token healing)."""
        super().__init__()
        self.params = params
        self.chain = builder.build(params, prompt, begun)
        self.sampler = TokenSampler.of(self.chain, params)
        self.finish_reason = "length" if params.max_tokens == 0 else None
        self.stopped_by: str | int | None = None
        self.ending: SampledToken | None = None  # the token that ended it, which is not part of it
        self._stop = StopChecker(
            params, tokenizer, skip_special=params.ignore_eos, skip_bytes=len(begun)
        )

    @property
    def is_open(self) -> bool:
        """Whether more may come."""
        return self.finish_reason is None

    @property
    def is_late(self) -> bool:
        """Whether its time limit has passed."""
        return self._stop.is_late

    def push(self, token: SampledToken) -> str:
        """Add a token; returns the text that may be shown now."""
        taken = self._stop.tokens
        piece = self._stop.push(token.token)
        if self._stop.tokens > taken:  # not one that ended the text
            self.sampled.append(token)
            self.chain.accept(token.token)
        else:
            self.ending = token
        text = piece.text
        if piece.finished is not None:
            self.finish_reason = piece.finished
            self.stopped_by = piece.stopped_by
        elif self.params.grammar is not None and self.chain.is_complete:
            self.finish_reason = "stop"
            text += self._stop.finish()
        if text:
            self.pieces.append(text)
        return text

    def end(self, reason: FinishReason) -> str:
        """End it for another reason; returns the text held back so far."""
        self.finish_reason = reason
        rest = self._stop.finish()
        if rest:
            self.pieces.append(rest)
        return rest

    def forced_tokens(self) -> list[int]:
        """Tokens that a grammar forces to come next, unless their log-probabilities are wanted."""
        if self.params.grammar is None or self.sampler.logprobs:
            return []
        return self.chain.forced_tokens()
