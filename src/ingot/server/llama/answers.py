"""What llama-server's answers have in common: errors and timings."""

from typing import Any

from pydantic import BaseModel

from ingot.engine import Timings


class ErrorDetail(BaseModel):
    """What went wrong."""

    code: int
    message: str
    type: str


class ErrorAnswer(BaseModel):
    """An answer with an error."""

    error: ErrorDetail


ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": ErrorAnswer, "description": text}
    for code, text in (
        (400, "The request cannot be answered as it is."),
        (401, "An API key is missing, or is not known."),
        (404, "There is no such model."),
        (413, "The request is too large."),
        (429, "Too many requests wait; `Retry-After` says when to try again."),
        (503, "The server is stopping, or has too little memory."),
    )
}


class TextTimings(BaseModel):
    """What a text took: of its prompt what was not in the cache, and what was written."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float


def timings_of(timings: Timings) -> TextTimings:
    """An engine's timings under llama-server's names."""
    read = timings.prompt_tokens - timings.reused_tokens
    written = timings.generated_tokens
    return TextTimings(
        cache_n=timings.reused_tokens,
        prompt_n=read,
        prompt_ms=timings.prompt_seconds * 1e3,
        prompt_per_token_ms=_each(timings.prompt_seconds * 1e3, read),
        prompt_per_second=_each(read, timings.prompt_seconds),
        predicted_n=written,
        predicted_ms=timings.generation_seconds * 1e3,
        predicted_per_token_ms=_each(timings.generation_seconds * 1e3, written),
        predicted_per_second=_each(written, timings.generation_seconds),
    )


def _each(amount: float, parts: float) -> float:
    return amount / parts if parts else 0.0
