"""The JSON of errors: one `ErrorInfo` in the form of each API family.

The models describe error responses in the OpenAPI schema and build their bodies.
"""

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel

from ingot.server.errors import ErrorInfo

_LLAMA_KINDS: Mapping[int, str] = MappingProxyType(
    {
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        501: "not_supported_error",
        503: "unavailable_error",
    }
)
_VLLM_KINDS: Mapping[int, str] = MappingProxyType({400: "InvalidUserInput", 404: "NotFoundError"})
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


class OpenAIErrorDetail(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None
    n_prompt_tokens: int | None = None  # only if a prompt does not fit the context
    n_ctx: int | None = None


class OpenAIError(BaseModel):
    """An error in OpenAI's form."""

    error: OpenAIErrorDetail


class LlamaErrorDetail(BaseModel):
    """What went wrong."""

    code: int
    message: str
    type: str
    n_prompt_tokens: int | None = None  # only if a prompt does not fit the context
    n_ctx: int | None = None


class LlamaError(BaseModel):
    """An error in llama-server's form."""

    error: LlamaErrorDetail


class VllmErrorDetail(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None = None
    code: int


class VllmError(BaseModel):
    """An error in vLLM's form."""

    error: VllmErrorDetail


class AnthropicErrorCode(BaseModel):
    """The cause of an error, for programs."""

    error_code: str


class AnthropicErrorDetail(BaseModel):
    """What went wrong."""

    type: str
    message: str
    details: AnthropicErrorCode | None = None


class AnthropicError(BaseModel):
    """An error in Anthropic's form."""

    type: Literal["error"] = "error"
    error: AnthropicErrorDetail


class OllamaError(BaseModel):
    """An error in Ollama's form."""

    error: str


def error_responses(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """The error responses of a family's endpoints, for the OpenAPI schema."""
    return {
        code: {"model": model, "description": text}
        for code, text in (
            (400, "The request is invalid."),
            (401, "The API key is missing or wrong."),
            (404, "There is no such model."),
            (413, "The request is too large."),
            (429, "The queue is full; `Retry-After` says when to try again."),
            (503, "The server is stopping, overloaded, or out of memory."),
        )
    }


def openai_error(info: ErrorInfo) -> dict[str, object]:
    """An error's body in OpenAI's form."""
    detail = OpenAIErrorDetail(
        message=info.message, type=info.kind, param=info.param, code=info.code
    )
    return {"error": {**detail.model_dump(exclude=_SIZES), **_sizes(info)}}


def llama_error(info: ErrorInfo) -> dict[str, object]:
    """An error's body in llama-server's form."""
    kind = _LLAMA_KINDS.get(info.status, info.kind)
    if info.context is not None:
        kind = "exceed_context_size_error"
    detail = LlamaErrorDetail(code=info.status, message=info.message, type=kind)
    return {"error": {**detail.model_dump(exclude=_SIZES), **_sizes(info)}}


_SIZES = {"n_prompt_tokens", "n_ctx"}


def _sizes(info: ErrorInfo) -> dict[str, int]:
    """The length of a prompt that does not fit, and of the context."""
    if info.prompt_tokens is None or info.context is None:
        return {}
    return {"n_prompt_tokens": info.prompt_tokens, "n_ctx": info.context}


def vllm_error(info: ErrorInfo) -> dict[str, object]:
    """An error's body in the form of vLLM's endpoints of LoRA adapters."""
    kind = _VLLM_KINDS.get(info.status, info.kind)
    detail = VllmErrorDetail(message=info.message, type=kind, param=info.param, code=info.status)
    return VllmError(error=detail).model_dump()


def anthropic_error(info: ErrorInfo) -> dict[str, object]:
    """An error's body in Anthropic's form."""
    is_ours = info.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    kind = _ANTHROPIC_KINDS.get(info.status, "api_error" if is_ours else "invalid_request_error")
    details = None if info.code is None else AnthropicErrorCode(error_code=info.code)
    detail = AnthropicErrorDetail(type=kind, message=info.message, details=details)
    return AnthropicError(error=detail).model_dump(exclude_none=True)


def ollama_error(info: ErrorInfo) -> dict[str, object]:
    """An error's body in Ollama's form."""
    return OllamaError(error=info.message).model_dump()


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
_VLLM_PATHS = frozenset({"/v1/load_lora_adapter", "/v1/unload_lora_adapter"})
_LLAMA_V1_PATHS = frozenset({"/v1/rerank", "/v1/reranking", "/v2/rerank"})


def error_body(path: str, info: ErrorInfo) -> dict[str, object]:
    """An error's body in the form of the family that a path belongs to."""
    if path.startswith("/v1/messages"):
        return anthropic_error(info)
    if path.startswith("/api/") and path != "/api/status":
        return ollama_error(info)
    parts = path.split("/")
    if path in _LLAMA_V1_PATHS or (len(parts) > 1 and parts[1] in _LLAMA_PATHS):
        return llama_error(info)
    if path in _VLLM_PATHS:
        return vllm_error(info)
    return openai_error(info)
