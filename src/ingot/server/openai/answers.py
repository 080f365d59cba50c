"""What OpenAI's answers have in common: ids, usage, log-probabilities, errors."""

import math
import time
import uuid
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel

from ingot import __version__
from ingot.engine import Completion
from ingot.errors import IngotError
from ingot.sampling import FinishReason, TokenLogprobs
from ingot.server.errors import ApiError, facts_of, openai_error
from ingot.server.sse import DONE, event
from ingot.tokenizer import Tokenizer

FINGERPRINT = f"ingot-{__version__}"
_LEAST_LOGPROB = -9999.0  # what OpenAI says in place of minus infinity, which JSON lacks


class ErrorDetail(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


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


class TokenDetails(BaseModel):
    """Tokens of a prompt, taken apart."""

    cached_tokens: int


class Usage(BaseModel):
    """Tokens read and written."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: TokenDetails


class TopLogprob(BaseModel):
    """A token that might have come, and how likely it was."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    """A token that came, and the likeliest in its place."""

    top_logprobs: list[TopLogprob]


def new_id(prefix: str) -> str:
    """An id for an answer."""
    return f"{prefix}-{uuid.uuid4().hex}"


def now() -> int:
    """The time of an answer."""
    return int(time.time())


def usage_of(texts: Sequence[Completion], prompts: int = 1) -> Usage:
    """The tokens of several texts; each prompt counts once, however many texts continue it."""
    per_prompt = max(len(texts) // prompts, 1)
    read = sum(text.timings.prompt_tokens for text in texts[::per_prompt])
    reused = sum(text.timings.reused_tokens for text in texts[::per_prompt])
    written = sum(len(text.token_ids) for text in texts)
    return Usage(
        prompt_tokens=read,
        completion_tokens=written,
        total_tokens=read + written,
        prompt_tokens_details=TokenDetails(cached_tokens=reused),
    )


def finish_reason(reason: FinishReason) -> Literal["stop", "length"]:
    """Why a text ended, in OpenAI's words."""
    return "stop" if reason == "stop" else "length"


def logprob(value: float) -> float:
    """A log-probability that JSON can hold."""
    return value if math.isfinite(value) else _LEAST_LOGPROB


def token_logprobs(tokenizer: Tokenizer, found: Sequence[TokenLogprobs]) -> list[TokenLogprob]:
    """Those of a chat's answer."""
    return [
        TokenLogprob(
            **_token(tokenizer, entry.token, entry.logprob),
            top_logprobs=[
                TopLogprob(**_token(tokenizer, token, value)) for token, value in entry.top
            ],
        )
        for entry in found
    ]


def _token(tokenizer: Tokenizer, token: int, value: float) -> dict[str, Any]:
    content = tokenizer.token_bytes(token)
    return {
        "token": content.decode("utf-8", "replace"),
        "logprob": logprob(value),
        "bytes": list(content),
    }


def error_events(error: ApiError | IngotError) -> bytes:
    """The end of a stream that met an error."""
    return event(openai_error(facts_of(error))) + DONE
