"""`/v1/batches`: the requests of an uploaded file, answered into another file."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.requests import Request as HttpRequest
from starlette.types import ASGIApp

from ingot.server.batches.files import FileStore, page_of
from ingot.server.batches.lines import ENDPOINTS, LineError, answer_line, read_line
from ingot.server.batches.records import BatchRecords
from ingot.server.batches.requests import Answer, BatchRequest
from ingot.server.batches.run import BatchRun
from ingot.server.errors import ApiError
from ingot.server.http.access_log import record_of
from ingot.server.openai.shared import ERRORS, new_id, now
from ingot.server.parameters import check_parameters
from ingot.server.sampling_body import RequestBody
from ingot.server.state import Server
from ingot.server.threads import run_in_thread

_MOST_REQUESTS = 50_000  # OpenAI's limit
_MOST_BATCHES = 256
_MOST_ERRORS = 100  # of a file that is not valid
_WINDOW_SECONDS = 24 * 3600

Status = Literal["in_progress", "finalizing", "completed", "failed", "cancelling", "cancelled"]


class BatchBody(RequestBody):
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


@dataclass(slots=True)
class _Job:
    batch: Batch
    run: BatchRun
    records: BatchRecords

    def now(self) -> Batch:
        """The batch with the counts so far."""
        answers = [each for each in self.run.answers.values() if each.status is not None]
        done = sum(answer.is_success for answer in answers)
        counts = RequestCounts(
            total=len(self.run.requests), completed=done, failed=len(answers) - done
        )
        return self.batch.model_copy(update={"request_counts": counts})

    def save(self) -> None:
        """Keep the state of the batch."""
        self.records.update(self.batch.id, self.batch.model_dump())

    def start(self, app: ASGIApp, server: Server, store: FileStore) -> None:
        """Answer the requests that are left."""
        keep = self.records.writer(self.batch.id)
        self.run.start(app, server, keep, lambda: self.end(store))

    def resume(self, app: ASGIApp, server: Server, store: FileStore) -> None:
        """Go on after a restart."""
        if self.batch.status == "in_progress":
            self.start(app, server, store)
        elif self.batch.status == "cancelling":
            self.run.give_up()
            self.end(store)

    def end(self, store: FileStore) -> None:
        """Write the files with the answers, and say how the batch ended."""
        self.batch.finalizing_at = now()
        pairs = list(zip(self.run.requests, _in_order(self.run), strict=True))
        good = [answer_line(request.custom_id, each) for request, each in pairs if each.is_success]
        bad = [
            answer_line(request.custom_id, each) for request, each in pairs if not each.is_success
        ]
        if good:
            self.batch.output_file_id = _written(store, f"{self.batch.id}_output.jsonl", good)
        if bad:
            self.batch.error_file_id = _written(store, f"{self.batch.id}_error.jsonl", bad)
        if self.batch.status == "cancelling":
            self.batch.status, self.batch.cancelled_at = "cancelled", now()
        else:
            self.batch.status, self.batch.completed_at = "completed", now()
        self.save()


def router(server: Server, store: FileStore, records: BatchRecords) -> APIRouter:
    """The endpoints; batches of an earlier server go on when this one starts."""
    routes = APIRouter(tags=["OpenAI"], responses=ERRORS)
    jobs: dict[str, _Job] = {}

    def resume(app: ASGIApp) -> None:
        for job in jobs.values():
            job.resume(app, server, store)

    server.batches_folder.when_claimed(
        lambda: jobs.update((job.batch.id, job) for job in _stored(records)), resume
    )

    def found(batch_id: str) -> _Job:
        if batch_id not in jobs:
            raise ApiError(404, f"there is no batch {batch_id!r:.60}")
        return jobs[batch_id]

    @routes.post("/v1/batches")
    async def create(body: BatchBody, http: HttpRequest) -> Batch:
        """Begin a batch; its requests are answered in the background."""
        check_parameters(body, record_of(http.scope), server.options)
        if body.endpoint not in ENDPOINTS:
            known = ", ".join(ENDPOINTS)
            raise ApiError(400, f"endpoint must be one of {known}", param="endpoint")
        _make_room(jobs, records)
        _, content = store.find(body.input_file_id, "input_file_id")
        requests, errors = await run_in_thread(_requests, content, body.endpoint)
        job = _Job(_new(body, errors), BatchRun(requests), records)
        await run_in_thread(records.create, job.batch.id, job.batch.model_dump(), requests)
        jobs[job.batch.id] = job
        if not errors:
            job.start(http.app, server, store)
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
            job.save()
            job.run.cancel()
        return job.now()

    return routes


def _stored(records: BatchRecords) -> Iterator[_Job]:
    """The batches of an earlier server."""
    for found in records.load():
        run = BatchRun(found.requests, found.answers)
        batch = Batch.model_validate(found.state)
        if batch.status not in ("in_progress", "cancelling"):
            run.give_up()
        yield _Job(batch, run, records)


def _make_room(jobs: dict[str, _Job], records: BatchRecords) -> None:
    """Forget the oldest batch that has ended, if there are too many."""
    if len(jobs) < _MOST_BATCHES:
        return
    ended = [name for name, job in jobs.items() if job.batch.status != "in_progress"]
    if not ended:
        raise ApiError(429, f"{_MOST_BATCHES} batches are running", retry=True)
    records.remove(ended[0])
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
            requests.append(read_line(text, seen, endpoint))
        except LineError as error:
            errors.append(BatchError(code=error.code, message=error.message, line=number))
    if not requests and not errors:
        errors.append(BatchError(code="empty_file", message="the file has no requests", line=0))
    if len(requests) > _MOST_REQUESTS:
        message = f"the file has more than {_MOST_REQUESTS} requests"
        errors.append(
            BatchError(code="too_many_requests", message=message, line=_MOST_REQUESTS + 1)
        )
    return requests, errors


def _in_order(run: BatchRun) -> list[Answer]:
    return [run.answers[number] for number in range(len(run.requests))]


def _written(store: FileStore, name: str, lines: list[dict[str, object]]) -> str:
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    return store.add(name, "batch_output", text.encode()).id
