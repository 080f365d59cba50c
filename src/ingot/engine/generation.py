"""Generation: one text as it is written, token by token.

A loaded model, its tokenizer and a prompt come in, pieces of text go out, with the tokens,
the reason of the end and the time it took. Other sequences may run between its steps.
"""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ingot.backends.batch import ExecutionPhase
from ingot.engine.loaded import LoadedModel
from ingot.errors import ModelError
from ingot.kvcache import Sequence as KvSequence
from ingot.sampling import choose
from ingot.tokenizer import StreamDecoder, Tokenizer

# The model ended the text; max_tokens did; or the context is full.
FinishReason = Literal["stop", "length", "context"]

Progress = Callable[[int, int], None]  # prompt tokens done, prompt tokens in all

_FIRST = np.zeros(1, np.int32)
_NONE = np.empty(0, np.int32)


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


class _Writer:
    """What is known of a text while it is written, and how it is written."""

    def __init__(
        self,
        model: LoadedModel,
        tokenizer: Tokenizer,
        prompt: NDArray[np.int32],
        *,
        max_tokens: int,
        temperature: float,
        seed: int | None,
        progress: Progress | None,
    ) -> None:
        self.prompt = prompt
        self.token_ids: list[int] = []
        self.finish_reason: FinishReason | None = None
        self.prompt_seconds = 0.0
        self.steps = 0
        self.generation_seconds = 0.0
        self._model = model
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        self._temperature = temperature
        self._random = np.random.default_rng(seed) if temperature else None
        self._progress = progress

    def write(self) -> Generator[str]:
        """The pieces of the text; closing it frees its part of the cache."""
        decoder = StreamDecoder(self._tokenizer)
        sequence = self._model.sequence()
        try:
            logits = self._run_prompt(sequence)
            while self._has_room():
                token = self._choose(logits)
                if token in self._tokenizer.eog_ids:
                    self.finish_reason = "stop"
                    break
                self.token_ids.append(token)
                if piece := decoder.push(token):
                    yield piece
                if self._has_room():
                    logits = self._run_token(sequence, token)
        finally:
            sequence.close()
        if rest := decoder.flush():
            yield rest

    def _has_room(self) -> bool:
        """Whether one more token may be written; if not, that is why the text ends."""
        if len(self.token_ids) == self._max_tokens:
            self.finish_reason = "length"
        elif len(self.prompt) + len(self.token_ids) == self._model.context:
            self.finish_reason = "context"
        return self.finish_reason is None

    def _run_prompt(self, sequence: KvSequence) -> NDArray[np.float32]:
        started = time.perf_counter()
        size, total = self._model.step_tokens, len(self.prompt)
        for start in range(0, total, size):
            if self._progress:
                self._progress(start, total)
            chunk = self.prompt[start : start + size]
            done = start + len(chunk)
            wanted = np.array([len(chunk) - 1], np.int32) if done == total else _NONE
            logits = self._model.step([sequence], [chunk], wanted, ExecutionPhase.PROMPT)
        if self._progress:
            self._progress(total, total)
        self.prompt_seconds = time.perf_counter() - started
        row: NDArray[np.float32] = logits[0]
        return row

    def _choose(self, logits: NDArray[np.float32]) -> int:
        started = time.perf_counter()
        token = choose(logits, self._temperature, self._random)
        self.generation_seconds += time.perf_counter() - started
        return token

    def _run_token(self, sequence: KvSequence, token: int) -> NDArray[np.float32]:
        started = time.perf_counter()
        ids = np.array([token], np.int32)
        logits = self._model.step([sequence], [ids], _FIRST, ExecutionPhase.GENERATION)
        self.steps += 1
        self.generation_seconds += time.perf_counter() - started
        row: NDArray[np.float32] = logits[0]
        return row


class Generation(Iterator[str]):
    """Iterate for the pieces; tokens and timings are right at any time between them.

    Ending early (`close`, or leaving a loop and dropping it) frees its part of the cache.
    """

    def __init__(
        self,
        model: LoadedModel,
        tokenizer: Tokenizer,
        prompt: str | Sequence[int],
        *,
        max_tokens: int,
        temperature: float,
        seed: int | None,
        progress: Progress | None = None,
    ) -> None:
        if max_tokens < 0:
            raise ModelError(f"max_tokens is {max_tokens}; it must be 0 or more")
        if not (temperature >= 0.0 and np.isfinite(temperature)):
            raise ModelError(f"temperature is {temperature}; it must be 0 or a positive number")
        ids = tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        self._writer = _Writer(
            model,
            tokenizer,
            model.check_ids(ids),
            max_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
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
        return tuple(self._writer.token_ids)

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the text ended; None if it has not, or was closed before."""
        return self._writer.finish_reason

    @property
    def timings(self) -> Timings:
        """Tokens and seconds so far."""
        writer = self._writer
        return Timings(
            prompt_tokens=len(writer.prompt),
            prompt_seconds=writer.prompt_seconds,
            generated_tokens=len(writer.token_ids),
            steps=writer.steps,
            generation_seconds=writer.generation_seconds,
        )
