"""From an error to what a client is told: a status, a kind, a message.

Each family of endpoints has its own shape for the same facts; what is not an error of ours says
nothing about the inside of the server.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType

from ingot.errors import (
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
from ingot.server.catalog import UnknownModelError

RETRY_SECONDS = 1  # after which a client may try again
_LONGEST = 1000  # characters of a message


class ApiError(Exception):
    """What a client is told in place of an answer."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry: bool = False,
    ) -> None:
        self.facts = Facts(status, message, param, code, retry)
        super().__init__(message)


class ClientGoneError(Exception):
    """Nobody waits for the answer any more."""


@dataclass(frozen=True, slots=True)
class Facts:
    """An error as every family of endpoints can tell it."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    retry: bool = False  # it may go better later

    def __post_init__(self) -> None:
        # What was sent may be in it, and may be of any length.
        object.__setattr__(self, "message", _shortened(self.message))
        object.__setattr__(self, "param", self.param and _shortened(self.param))

    @property
    def headers(self) -> Mapping[str, str]:
        """What goes with it."""
        return {"Retry-After": str(RETRY_SECONDS)} if self.retry else {}

    @property
    def kind(self) -> str:
        """OpenAI's name for errors of that status."""
        if self.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return "server_error"
        return _KINDS.get(self.status, "invalid_request_error")


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


_KINDS: Mapping[int, str] = MappingProxyType(
    {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
)
_LLAMA_KINDS: Mapping[int, str] = MappingProxyType(
    {
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        501: "not_supported_error",
        503: "unavailable_error",
    }
)
_ANTHROPIC_KINDS: Mapping[int, str] = MappingProxyType(
    {
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        503: "overloaded_error",
    }
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


def facts_of(error: BaseException) -> Facts:
    """What to say of an error."""
    match error:
        case ApiError():
            return error.facts
        case SamplingError():
            return Facts(400, str(error), param=error.field)
        case ContextLengthError():
            return Facts(400, str(error), code="context_length_exceeded")
        case UnknownModelError():
            return Facts(404, str(error), param="model", code="model_not_found")
        case QueueFullError():
            return Facts(429, str(error), code="queue_full", retry=True)
        case _ if isinstance(error, tuple(_UNAVAILABLE)):
            return _unavailable(error)
        case (
            GrammarError()
            | ChatTemplateError()
            | TokenizerError()
            | SavedCacheError()
            | ModelError()  # of the model, or of a prompt that it cannot read
            | ConfigError()
        ):
            return Facts(400, str(error))
        case ToolError():
            return Facts(400, str(error), param="tools")
        case LogitsError():
            return Facts(400, f"no token is left to choose: {error}")
        case IngotError():
            return Facts(500, str(error))
        case _:
            return Facts(500, "the server met an error of its own; its log says more")


def _unavailable(error: BaseException) -> Facts:
    """What to say of an error that may be over in a while."""
    code = next(code for kind, code in _UNAVAILABLE.items() if isinstance(error, kind))
    what = str(error) or "the server has too little memory for this request now"
    return Facts(503, what, code=code, retry=True)


def openai_error(facts: Facts) -> dict[str, object]:
    """The body of an error as OpenAI's clients read it."""
    return {
        "error": {
            "message": facts.message,
            "type": facts.kind,
            "param": facts.param,
            "code": facts.code,
        }
    }


def llama_error(facts: Facts) -> dict[str, object]:
    """The same for llama-server's."""
    kind = _LLAMA_KINDS.get(facts.status, facts.kind)
    return {"error": {"code": facts.status, "message": facts.message, "type": kind}}


def anthropic_error(facts: Facts) -> dict[str, object]:
    """The same for Anthropic's."""
    server_error = facts.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    kind = _ANTHROPIC_KINDS.get(
        facts.status, "api_error" if server_error else "invalid_request_error"
    )
    return {"type": "error", "error": {"type": kind, "message": facts.message}}


# llama-server's own endpoints, which have its shape of errors.
_LLAMA_PATHS = frozenset(
    {
        "apply-template",
        "completion",
        "completions",
        "detokenize",
        "embedding",
        "embeddings",
        "infill",
        "lora-adapters",
        "props",
        "rerank",
        "reranking",
        "slots",
        "tokenize",
    }
)


_LLAMA_V1_PATHS = frozenset({"/v1/rerank", "/v1/reranking"})


def error_body(path: str, facts: Facts) -> dict[str, object]:
    """The body of an error in the shape of the family that a path belongs to."""
    if path.startswith("/v1/messages"):
        return anthropic_error(facts)
    parts = path.split("/")
    if path in _LLAMA_V1_PATHS or (len(parts) > 1 and parts[1] in _LLAMA_PATHS):
        return llama_error(facts)
    return openai_error(facts)
