"""Lines of OpenAI's batch files: a request each, and the answers to them.

A line comes in as bytes and goes out as a `BatchRequest`, or as a `LineError`. It does not know
where the lines are.
"""

from typing import Any, Literal

from pydantic import ValidationError

from ingot.server.batches.requests import Answer, BatchRequest
from ingot.server.errors import ApiError
from ingot.server.http.body import check_json
from ingot.server.openai.shared import new_id
from ingot.server.sampling_body import Body

ENDPOINTS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/score",
    "/v1/rerank",
)


class LineError(Exception):
    """What is wrong with a line; `custom_id` is None if it has none."""

    def __init__(self, code: str, message: str, custom_id: str | None = None) -> None:
        self.code = code
        self.message = message
        self.custom_id = custom_id
        super().__init__(message)


class _Line(Body):
    custom_id: str
    method: Literal["POST"]
    url: str
    body: dict[str, Any]


def read_line(text: bytes, seen: set[str], endpoint: str | None = None) -> BatchRequest:
    """The request of a line, whose id is added to those seen before.

    `endpoint`: the only one that is allowed; None: any of `ENDPOINTS`.
    """
    try:
        check_json(text)
        line = _Line.model_validate_json(text)
    except (ApiError, ValidationError) as error:
        raise LineError("invalid_line", _reason(error)) from None
    if (problem := _problem(line, endpoint, seen)) is not None:
        raise LineError(*problem, line.custom_id)
    seen.add(line.custom_id)
    return BatchRequest(line.custom_id, line.url, line.body)


def _reason(error: ApiError | ValidationError) -> str:
    if isinstance(error, ApiError):
        return error.info.message
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the line'}: {first['msg']}"


def _problem(line: _Line, endpoint: str | None, seen: set[str]) -> tuple[str, str] | None:
    if endpoint is not None and line.url != endpoint:
        return "mismatched_url", f"url is {line.url!r:.60}; the batch's endpoint is {endpoint}"
    if line.url not in ENDPOINTS:
        return "invalid_url", f"url is {line.url!r:.60}; it must be one of {', '.join(ENDPOINTS)}"
    if line.custom_id in seen:
        return "duplicate_custom_id", f"custom_id {line.custom_id!r:.60} occurs twice"
    if line.body.get("stream"):
        return "invalid_request", "a request of a batch cannot be streamed"
    return None


def answer_line(custom_id: str, answer: Answer) -> dict[str, object]:
    """The line of an answer."""
    if answer.status is None:
        return error_line(
            custom_id, "batch_cancelled", "the batch was cancelled before this request"
        )
    response = {
        "status_code": answer.status,
        "request_id": answer.request_id,
        "body": answer.body,
    }
    return {"id": new_id("batch_req_"), "custom_id": custom_id, "response": response, "error": None}


def error_line(custom_id: str | None, code: str, message: str, **more: object) -> dict[str, object]:
    """The line of a request that was not answered."""
    error = {"code": code, "message": message, **more}
    return {"id": new_id("batch_req_"), "custom_id": custom_id, "response": None, "error": error}
