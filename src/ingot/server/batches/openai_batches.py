"""`/v1/batches`: the requests of an uploaded file, answered into another file."""

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, ValidationError
from starlette.requests import Request as HttpRequest
from starlette.types import ASGIApp

from ingot.server.batches.files import FileStore, page_of
from ingot.server.batches.run import Answer, BatchRequest, BatchRun
from ingot.server.errors import ApiError
from ingot.server.http.body import check_json
from ingot.server.openai.shared import ERRORS, new_id, now
from ingot.server.sampling_body import Body
from ingot.server.state import Server
from ingot.server.threads import run_in_thread

_ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
_MOST_REQUESTS = 50_000  # OpenAI's limit
_MOST_BATCHES = 256
_MOST_ERRORS = 100  # of a file that is not valid
_WINDOW_SECONDS = 24 * 3600

Status = Literal["in_progress", "finalizing", "completed", "failed", "cancelling", "cancelled"]


class BatchBody(Body):
    """The file with the requests of a batch, and the endpoint that answers them."""

    input_file_id: str
    endpoint: str
    completion_window: str = "24h"
    metadata: dict[str, str] | None = None


class BatchError(BaseModel):
    """What is wrong with a line of the file."""

    code: str
    message: str
    line: int
    param: str | None = None


class BatchErrors(BaseModel):
    """What is wrong with the file."""

    object: Literal["list"] = "list"
    data: list[BatchError]


class RequestCounts(BaseModel):
    """The requests of a batch by outcome."""

    total: int = 0
    completed: int = 0
    failed: int = 0


class Batch(BaseModel):
    """A batch."""

    id: str
    object: Literal["batch"] = "batch"
    endpoint: str
    errors: BatchErrors | None = None
    input_file_id: str
    completion_window: str
    status: Status
    output_file_id: str | None = None
    error_file_id: str | None = None
    created_at: int
    in_progress_at: int | None = None
    expires_at: int
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: RequestCounts = Field(default_factory=RequestCounts)
    metadata: dict[str, str] | None = None


class BatchList(BaseModel):
    """A page of batches, the newest first."""

    object: Literal["list"] = "list"
    data: list[Batch]
    first_id: str | None
    last_id: str | None
    has_more: bool


class _Line(Body):
    """A line of the file."""

    custom_id: str
    method: Literal["POST"]
    url: str
    body: dict[str, Any]


@dataclass(slots=True)
class _Job:
    batch: Batch
    run: BatchRun

    def now(self) -> Batch:
        """The batch with the counts so far."""
        answers = [each for each in self.run.answers.values() if each.status is not None]
        done = sum(answer.is_success for answer in answers)
        counts = RequestCounts(
            total=len(self.run.requests), completed=done, failed=len(answers) - done
        )
        return self.batch.model_copy(update={"request_counts": counts})

    def end(self, store: FileStore) -> None:
        """Write the files with the answers, and say how the batch ended."""
        self.batch.finalizing_at = now()
        pairs = list(zip(self.run.requests, _in_order(self.run), strict=True))
        good = [_line(request, each) for request, each in pairs if each.is_success]
        bad = [_line(request, each) for request, each in pairs if not each.is_success]
        if good:
            self.batch.output_file_id = _written(store, f"{self.batch.id}_output.jsonl", good)
        if bad:
            self.batch.error_file_id = _written(store, f"{self.batch.id}_error.jsonl", bad)
        if self.batch.status == "cancelling":
            self.batch.status, self.batch.cancelled_at = "cancelled", now()
        else:
            self.batch.status, self.batch.completed_at = "completed", now()


def router(server: Server, store: FileStore) -> APIRouter:
    """The endpoints."""
    routes = APIRouter(tags=["OpenAI"], responses=ERRORS)
    jobs: dict[str, _Job] = {}

    def found(batch_id: str) -> _Job:
        if batch_id not in jobs:
            raise ApiError(404, f"there is no batch {batch_id!r:.60}")
        return jobs[batch_id]

    @routes.post("/v1/batches")
    async def create(body: BatchBody, http: HttpRequest) -> Batch:
        """Begin a batch; its requests are answered in the background."""
        if body.endpoint not in _ENDPOINTS:
            known = ", ".join(_ENDPOINTS)
            raise ApiError(400, f"endpoint must be one of {known}", param="endpoint")
        _make_room(jobs)
        _, content = store.find(body.input_file_id, "input_file_id")
        requests, errors = await run_in_thread(_requests, content, body.endpoint)
        job = _Job(_new(body, errors), BatchRun(requests))
        jobs[job.batch.id] = job
        if not errors:
            app: ASGIApp = http.app
            job.run.start(app, server, lambda: job.end(store))
        return job.now()

    @routes.get("/v1/batches")
    async def batches(
        limit: Annotated[int, Query(ge=1, le=100)] = 20, after: str | None = None
    ) -> BatchList:
        """List the batches."""
        page, has_more = page_of([job.now() for job in reversed(jobs.values())], limit, after)
        ends = [page[0].id, page[-1].id] if page else [None, None]
        return BatchList(data=page, first_id=ends[0], last_id=ends[1], has_more=has_more)

    @routes.get("/v1/batches/{batch_id}")
    async def retrieve(batch_id: str) -> Batch:
        """One batch."""
        return found(batch_id).now()

    @routes.post("/v1/batches/{batch_id}/cancel")
    async def cancel(batch_id: str) -> Batch:
        """Cancel a batch; what is answered already stays."""
        job = found(batch_id)
        if job.batch.status == "in_progress":
            job.batch.status, job.batch.cancelling_at = "cancelling", now()
            job.run.cancel()
        return job.now()

    return routes


def _make_room(jobs: dict[str, _Job]) -> None:
    """Forget the oldest batch that has ended, if there are too many."""
    if len(jobs) < _MOST_BATCHES:
        return
    ended = [name for name, job in jobs.items() if job.batch.status != "in_progress"]
    if not ended:
        raise ApiError(429, f"{_MOST_BATCHES} batches are running", retry=True)
    del jobs[ended[0]]


def _new(body: BatchBody, errors: list[BatchError]) -> Batch:
    time = now()
    return Batch(
        id=new_id("batch_"),
        endpoint=body.endpoint,
        errors=BatchErrors(data=errors) if errors else None,
        input_file_id=body.input_file_id,
        completion_window=body.completion_window,
        status="failed" if errors else "in_progress",
        created_at=time,
        in_progress_at=None if errors else time,
        failed_at=time if errors else None,
        expires_at=time + _WINDOW_SECONDS,
        metadata=body.metadata,
    )


def _requests(content: bytes, endpoint: str) -> tuple[list[BatchRequest], list[BatchError]]:
    """The requests of a file, and what is wrong with its lines."""
    requests: list[BatchRequest] = []
    errors: list[BatchError] = []
    seen: set[str] = set()
    for number, text in enumerate(content.splitlines(), 1):
        if not text.strip() or len(errors) == _MOST_ERRORS:
            continue
        try:
            check_json(text)
            line = _Line.model_validate_json(text)
        except (ApiError, ValidationError) as error:
            errors.append(BatchError(code="invalid_line", message=_reason(error), line=number))
            continue
        if (problem := _problem(line, endpoint, seen)) is not None:
            errors.append(BatchError(code=problem[0], message=problem[1], line=number))
        seen.add(line.custom_id)
        requests.append(BatchRequest(line.custom_id, endpoint, line.body))
    if not requests and not errors:
        errors.append(BatchError(code="empty_file", message="the file has no requests", line=0))
    if len(requests) > _MOST_REQUESTS:
        message = f"the file has more than {_MOST_REQUESTS} requests"
        errors.append(
            BatchError(code="too_many_requests", message=message, line=_MOST_REQUESTS + 1)
        )
    return requests, errors


def _reason(error: ApiError | ValidationError) -> str:
    if isinstance(error, ApiError):
        return error.info.message
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the line'}: {first['msg']}"


def _problem(line: _Line, endpoint: str, seen: set[str]) -> tuple[str, str] | None:
    if line.url != endpoint:
        return "mismatched_url", f"url is {line.url!r:.60}; the batch's endpoint is {endpoint}"
    if line.custom_id in seen:
        return "duplicate_custom_id", f"custom_id {line.custom_id!r:.60} occurs twice"
    if line.body.get("stream"):
        return "invalid_request", "a request of a batch cannot be streamed"
    return None


def _in_order(run: BatchRun) -> list[Answer]:
    return [run.answers[number] for number in range(len(run.requests))]


def _line(request: BatchRequest, answer: Answer) -> dict[str, object]:
    response, error = None, None
    if answer.status is None:
        error = {
            "code": "batch_cancelled",
            "message": "the batch was cancelled before this request",
        }
    else:
        response = {
            "status_code": answer.status,
            "request_id": answer.request_id,
            "body": answer.body,
        }
    return {
        "id": new_id("batch_req_"),
        "custom_id": request.custom_id,
        "response": response,
        "error": error,
    }


def _written(store: FileStore, name: str, lines: list[dict[str, object]]) -> str:
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    return store.add(name, "batch_output", text.encode()).id
