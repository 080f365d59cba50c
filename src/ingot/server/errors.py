"""ErrorInfo: what a client learns about an error: status, message, code, when to retry.

Exceptions come in. An exception that is not one of Ingot's own becomes a plain 500, which says
nothing about the inside of the server. `error_bodies` gives each API family its JSON.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType

from ingot.errors import (
    AdapterError,
    CacheFullError,
    ChatTemplateError,
    ConfigError,
    ContextLengthError,
    EngineError,
    GrammarError,
    IngotError,
    LogitsError,
    MemoryShortageError,
    ModelChangedError,
    ModelError,
    QueueFullError,
    SamplingError,
    SavedCacheError,
    ThreadLimitError,
    TokenizerError,
    ToolError,
)
from ingot.server.catalog import ModelBusyError, UnknownModelError

RETRY_SECONDS = 1  # what `Retry-After` says
_MAX_LENGTH = 1000  # characters of a message


class ApiError(Exception):
    """An error to send to the client."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry: bool = False,
    ) -> None:
        self.info = ErrorInfo(status, message, param, code, retry)
        super().__init__(message)


class ClientGoneError(Exception):
    """The client disconnected."""

    def __init__(self) -> None:
        super().__init__("the client has disconnected")


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """An error in the form that all API families share."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    retry: bool = False  # the same request may succeed later
    prompt_tokens: int | None = None  # of a prompt that does not fit
    context: int | None = None  # in which it does not fit

    def __post_init__(self) -> None:
        # A message may quote what the client sent, which may have any length.
        object.__setattr__(self, "message", _shortened(self.message))
        object.__setattr__(self, "param", self.param and _shortened(self.param))

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the response."""
        return {"Retry-After": str(RETRY_SECONDS)} if self.retry else {}

    @property
    def kind(self) -> str:
        """OpenAI's error type for the status."""
        if self.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return "server_error"
        return _KINDS.get(self.status, "invalid_request_error")


def stopping_error() -> ApiError:
    """The error of requests that meet a server about to stop."""
    return ApiError(
        503, "the server is stopping; try again later", code="server_stopping", retry=True
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}..."


_KINDS: Mapping[int, str] = MappingProxyType(
    {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
)

_UNAVAILABLE: Mapping[type[Exception], str] = MappingProxyType(
    {
        EngineError: "engine_unavailable",
        ThreadLimitError: "engine_unavailable",
        CacheFullError: "out_of_memory",
        MemoryShortageError: "out_of_memory",
        MemoryError: "out_of_memory",
        ModelChangedError: "model_changed",
    }
)


def error_info(error: BaseException) -> ErrorInfo:
    """What a client learns about an exception."""
    match error:
        case ApiError():
            return error.info
        case SamplingError():
            return ErrorInfo(400, str(error), param=error.field)
        case ContextLengthError():
            return _overflow(error)
        case UnknownModelError():
            return ErrorInfo(404, str(error), param="model", code="model_not_found")
        case ModelBusyError():
            return ErrorInfo(409, str(error), param="model", code="model_busy", retry=True)
        case QueueFullError():
            return ErrorInfo(429, str(error), code="queue_full", retry=True)
        case _ if isinstance(error, tuple(_UNAVAILABLE)):
            return _unavailable(error)
        case (
            GrammarError()
            | ChatTemplateError()
            | TokenizerError()
            | SavedCacheError()
            | AdapterError()
            | ModelError()  # the model cannot do this, or cannot read this prompt
            | ConfigError()
        ):
            return ErrorInfo(400, str(error))
        case ToolError():
            return ErrorInfo(400, str(error), param="tools")
        case LogitsError():
            return ErrorInfo(400, f"no token can be sampled: {error}")
        case IngotError():
            return ErrorInfo(500, str(error))
        case _:
            return ErrorInfo(500, "internal server error; the server's log has the details")


def _overflow(error: ContextLengthError) -> ErrorInfo:
    """The error of a prompt that does not fit. Clients look for OpenAI's wording."""
    if error.tokens is None or error.context is None:
        return ErrorInfo(400, str(error), code="context_length_exceeded")
    return ErrorInfo(
        400,
        f"This model's maximum context length is {error.context} tokens. However, the prompt has "
        f"{error.tokens} tokens. Shorten it, or serve the model with a larger --context.",
        code="context_length_exceeded",
        prompt_tokens=error.tokens,
        context=error.context,
    )


def _unavailable(error: BaseException) -> ErrorInfo:
    code = next(code for kind, code in _UNAVAILABLE.items() if isinstance(error, kind))
    message = str(error) or "the server does not have enough memory for this request now"
    return ErrorInfo(503, message, code=code, retry=True)
