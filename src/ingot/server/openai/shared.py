"""What OpenAI's endpoints share: prompts, ids, usage, finish reasons, the errors of streams."""

import time
import uuid
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from ingot import __version__
from ingot.engine import Completion
from ingot.errors import IngotError
from ingot.sampling import FinishReason
from ingot.server.body_limits import PromptList, Tokens
from ingot.server.chat import Chat, prepare
from ingot.server.error_bodies import OpenAIError, error_responses, openai_error
from ingot.server.errors import ApiError, error_info
from ingot.server.http.access_log import AccessRecord
from ingot.server.http.event_stream import DONE, event
from ingot.server.sampling_body import ParameterGroup
from ingot.server.state import Server
from ingot.server.threads import run_in_thread

FINGERPRINT = f"ingot-{__version__}"
ERRORS = error_responses(OpenAIError)

MAX_CHOICES = 128
Choices = Annotated[int, Field(ge=1, le=MAX_CHOICES)]
Prompts = str | Tokens | PromptList[str] | PromptList[Tokens]


class StreamOptions(ParameterGroup):
    """Options of a stream."""

    include_usage: bool | None = None


class TokenDetails(BaseModel):
    """Prompt tokens by kind."""

    cached_tokens: int


class Usage(BaseModel):
    """Prompt tokens and generated tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: TokenDetails


class InputUsage(BaseModel):
    """The tokens of requests that generate none."""

    prompt_tokens: int
    total_tokens: int


class InputTokens(BaseModel):
    """The number of tokens of a request's input."""

    object: Literal["response.input_tokens"] = "response.input_tokens"
    input_tokens: int
    warnings: list[str] | None = None  # about parameters that were ignored


async def count_tokens(
    server: Server, model: str | None, chat: Chat, record: AccessRecord
) -> InputTokens:
    """Count the tokens of a chat's prompt."""
    with await server.catalog.lease(model) as lease:
        ids, _ = await run_in_thread(prepare, lease.llm, chat)
    return InputTokens(input_tokens=len(ids), warnings=record.warnings or None)


def prompt_list(given: str | list[int] | list[str] | list[list[int]]) -> list[str | list[int]]:
    """All prompts of a body."""
    if isinstance(given, str):
        return [given]
    tokens = [entry for entry in given if isinstance(entry, int)]
    return [tokens] if tokens else [entry for entry in given if not isinstance(entry, int)]


def new_id(prefix: str) -> str:
    """A new id."""
    return f"{prefix}{uuid.uuid4().hex}"


def now() -> int:
    """The current time, in seconds since 1970."""
    return int(time.time())


def usage_of(completions: Sequence[Completion], prompts: int = 1) -> Usage:
    """The tokens of completions; a prompt counts once, however many completions it has."""
    per_prompt = max(len(completions) // prompts, 1)
    read = sum(each.timings.prompt_tokens for each in completions[::per_prompt])
    reused = sum(each.timings.reused_tokens for each in completions[::per_prompt])
    generated = sum(len(each.token_ids) for each in completions)
    return Usage(
        prompt_tokens=read,
        completion_tokens=generated,
        total_tokens=read + generated,
        prompt_tokens_details=TokenDetails(cached_tokens=reused),
    )


def finish_reason(reason: FinishReason) -> Literal["stop", "length"]:
    """A finish reason in OpenAI's words."""
    return "stop" if reason == "stop" else "length"


def error_events(error: ApiError | IngotError) -> bytes:
    """The end of a stream after an error."""
    return event(openai_error(error_info(error))) + DONE
