"""Generation: one text as it is written, token by token.

A loaded model, its tokenizer, a prompt and parameters come in, pieces of text go out, with the
tokens, the reason of the end and the time it took. Other sequences may run between its steps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingot.engine.loaded import LoadedModel
from ingot.engine.writer import FinishReason, Guidance, Progress, Writer
from ingot.errors import SamplingError
from ingot.sampling import (
    ChainBuilder,
    Choosing,
    SamplingParams,
    StopChecker,
    TokenLogprobs,
)
from ingot.tokenizer import Tokenizer

Prompt = str | Sequence[int] | NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class Timings:
    """Tokens and the seconds the model spent on them; what the caller did between is not in."""

    prompt_tokens: int
    prompt_seconds: float  # until the first token can be chosen
    generated_tokens: int
    steps: int  # runs of the model after the prompt: the first token needs none
    generation_seconds: float  # of those steps and of choosing tokens

    @property
    def prompt_rate(self) -> float:
        """Prompt tokens per second; 0 before the prompt is done."""
        return self.prompt_tokens / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def generation_rate(self) -> float:
        """Steps per second; 0 before the first."""
        return self.steps / self.generation_seconds if self.steps else 0.0


@dataclass(frozen=True, slots=True)
class Completion:
    """What the model wrote."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    timings: Timings
    seed: int  # of its draws: the same seed gives the same text
    stopped_by: str | int | None = None  # the stop string, or the token that ended the text
    logprobs: tuple[TokenLogprobs, ...] = ()  # of each token by the model, if asked for
    chain_logprobs: tuple[TokenLogprobs, ...] = ()  # and behind the samplers
    parsed: object = None  # what the text says, if a schema was given and the text is complete


@dataclass(frozen=True, slots=True)
class Mode:
    """Other ways to decode: away from a second prompt; from the middle of the last token."""

    negative_prompt: Prompt | None = None
    cfg_scale: float = 1.0
    heal: bool = False


class Generation(Iterator[str]):
    """Iterate for the pieces; tokens and timings are right at any time between them.

    Ending early (`close`, or leaving a loop and dropping it) frees its part of the cache.
    """

    def __init__(
        self,
        model: LoadedModel,
        tokenizer: Tokenizer,
        builder: ChainBuilder,
        prompt: Prompt,
        params: SamplingParams,
        mode: Mode | None = None,
        progress: Progress | None = None,
    ) -> None:
        mode = mode or Mode()
        ids = model.check_ids(_ids(tokenizer, prompt))
        begun = builder.begun_by(int(ids[-1])) if mode.heal and len(ids) > 1 else b""
        if begun:
            ids = ids[:-1]
        chain = builder.build(params, ids, begun)
        self._chain = chain
        self._writer = Writer(
            model,
            ids,
            Choosing.of(chain, params),
            StopChecker(params, tokenizer, skip_special=False, skip_bytes=len(begun)),
            max_tokens=params.max_tokens,
            guidance=_guidance(model, tokenizer, mode),
            ahead=params.grammar is not None,
            progress=progress,
        )
        # Of the writer, not of this object: a generator that held this object would keep it,
        # and the cache, from going when its reader drops it.
        self._pieces = self._writer.write()

    def __next__(self) -> str:
        return next(self._pieces)

    def close(self) -> None:
        """Stop; what was written stays."""
        self._pieces.close()

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The tokens written so far."""
        return self._writer.token_ids

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the text ended; None if it has not, or was closed before."""
        return self._writer.finish_reason

    @property
    def seed(self) -> int:
        """The seed of the draws, given or taken at random."""
        return self._chain.seed

    @property
    def logprobs(self) -> tuple[TokenLogprobs, ...]:
        """Those of the tokens so far by the model, if they were asked for."""
        found = (choice.logprobs for choice in self._writer.choices)
        return tuple(logprobs for logprobs in found if logprobs is not None)

    @property
    def timings(self) -> Timings:
        """Tokens and seconds so far."""
        writer = self._writer
        return Timings(
            prompt_tokens=len(writer.prompt),
            prompt_seconds=writer.prompt_seconds,
            generated_tokens=len(writer.choices),
            steps=writer.steps,
            generation_seconds=writer.generation_seconds,
        )

    def complete(self) -> Completion:
        """Write to the end."""
        text = "".join(self)
        writer = self._writer
        assert writer.finish_reason is not None, "the text has come to its end"
        behind = (choice.chain_logprobs for choice in writer.choices)
        return Completion(
            text,
            writer.token_ids,
            writer.finish_reason,
            self.timings,
            self.seed,
            writer.stopped_by,
            self.logprobs,
            tuple(logprobs for logprobs in behind if logprobs is not None),
        )


def _ids(tokenizer: Tokenizer, prompt: Prompt) -> Sequence[int] | NDArray[np.integer]:
    return tokenizer.encode(prompt) if isinstance(prompt, str) else prompt


def _guidance(model: LoadedModel, tokenizer: Tokenizer, mode: Mode) -> Guidance | None:
    if mode.negative_prompt is None:
        if mode.cfg_scale != 1.0:
            raise SamplingError("cfg_scale", mode.cfg_scale, "1 without a negative_prompt")
        return None
    if not np.isfinite(mode.cfg_scale):
        raise SamplingError("cfg_scale", mode.cfg_scale, "a finite number")
    ids = model.check_ids(_ids(tokenizer, mode.negative_prompt))
    return Guidance(ids, mode.cfg_scale)
