"""Timings and prompt progress of a completion, under llama-server's names."""

from pydantic import BaseModel

from ingot.engine import Timings
from ingot.engine.request import Progress
from ingot.server.metrics import ratio


class CompletionTimings(BaseModel):
    """Times of prefill (without tokens from the prefix cache) and of decode."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float
    draft_n: int = 0  # tokens that speculation guessed
    draft_n_accepted: int = 0  # of those, which were right


class PromptProgress(BaseModel):
    """How much of a prompt is read; `processed` includes the tokens from the prefix cache."""

    total: int
    cache: int
    processed: int
    time_ms: int


def timings_of(timings: Timings) -> CompletionTimings:
    """The engine's timings."""
    read = timings.prompt_tokens - timings.reused_tokens
    generated = timings.generated_tokens
    return CompletionTimings(
        cache_n=timings.reused_tokens,
        prompt_n=read,
        prompt_ms=timings.prompt_seconds * 1e3,
        prompt_per_token_ms=ratio(timings.prompt_seconds * 1e3, read),
        prompt_per_second=ratio(read, timings.prompt_seconds),
        predicted_n=generated,
        predicted_ms=timings.generation_seconds * 1e3,
        predicted_per_token_ms=ratio(timings.generation_seconds * 1e3, generated),
        predicted_per_second=ratio(generated, timings.generation_seconds),
        draft_n=timings.guessed_tokens,
        draft_n_accepted=timings.accepted_tokens,
    )


def progress_of(progress: Progress, timings: Timings, seconds: float) -> PromptProgress:
    """The engine's progress, `seconds` after the request was submitted."""
    return PromptProgress(
        total=progress.total,
        cache=timings.reused_tokens,
        processed=progress.done,
        time_ms=int(seconds * 1e3),
    )
