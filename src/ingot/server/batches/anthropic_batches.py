"""`/v1/messages/batches`: many messages at once, in Anthropic's form."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import ASGIApp

from ingot.server.batches.records import BatchRecords
from ingot.server.batches.requests import Answer, BatchRequest
from ingot.server.batches.run import BatchRun
from ingot.server.body_limits import Many
from ingot.server.error_bodies import AnthropicError, error_responses
from ingot.server.errors import ApiError
from ingot.server.http.access_log import record_of
from ingot.server.openai.shared import new_id
from ingot.server.parameters import check_parameters
from ingot.server.sampling_body import ParameterGroup, RequestBody
from ingot.server.state import Server
from ingot.server.threads import run_in_thread

_MOST_BATCHES = 256
_WINDOW = timedelta(hours=24)


class MessageRequest(ParameterGroup):
    """A request for a message."""

    custom_id: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    params: dict[str, Any]


class BatchBody(RequestBody):
    """The requests of a batch."""

    requests: Annotated[Many[MessageRequest], Field(min_length=1)]


class RequestCounts(BaseModel):
    """The requests of a batch by outcome."""

    processing: int
    succeeded: int
    errored: int
    canceled: int
    expired: int = 0


class MessageBatch(BaseModel):
    """A batch."""

    id: str
    type: Literal["message_batch"] = "message_batch"
    processing_status: Literal["in_progress", "canceling", "ended"]
    request_counts: RequestCounts
    created_at: datetime
    expires_at: datetime
    ended_at: datetime | None = None
    archived_at: datetime | None = None
    cancel_initiated_at: datetime | None = None
    results_url: str | None = None


class BatchPage(BaseModel):
    """A page of batches, the newest first."""

    data: list[MessageBatch]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedBatch(BaseModel):
    """A deleted batch."""

    id: str
    type: Literal["message_batch_deleted"] = "message_batch_deleted"


@dataclass(slots=True)
class _Job:
    id: str
    run: BatchRun
    records: BatchRecords
    created: datetime
    ended: datetime | None = None
    cancelled: datetime | None = None

    def now(self, http: HttpRequest) -> MessageBatch:
        """The batch with the counts so far; the request says where the server is."""
        outcomes = [_outcome(answer) for answer in self.run.answers.values()]
        counts = RequestCounts(
            processing=len(self.run.requests) - len(outcomes),
            succeeded=outcomes.count("succeeded"),
            errored=outcomes.count("errored"),
            canceled=outcomes.count("canceled"),
        )
        status: Literal["in_progress", "canceling", "ended"] = "in_progress"
        if self.ended is not None:
            status = "ended"
        elif self.cancelled is not None:
            status = "canceling"
        url = str(http.url_for("message_batch_results", batch_id=self.id))
        return MessageBatch(
            id=self.id,
            processing_status=status,
            request_counts=counts,
            created_at=self.created,
            expires_at=self.created + _WINDOW,
            ended_at=self.ended,
            cancel_initiated_at=self.cancelled,
            results_url=url if self.ended else None,
        )

    @property
    def state(self) -> dict[str, Any]:
        """What is kept of the batch, besides its requests and answers."""
        times = {"created_at": self.created, "ended": self.ended, "cancelled": self.cancelled}
        return {"id": self.id, **{name: time and time.isoformat() for name, time in times.items()}}

    def start(self, app: ASGIApp, server: Server) -> None:
        """Answer the requests that are left."""
        self.run.start(app, server, self.records.writer(self.id), self.end)

    def resume(self, app: ASGIApp, server: Server) -> None:
        """Go on after a restart."""
        if self.ended is None and self.cancelled is None:
            self.start(app, server)
        elif self.ended is None:
            self.run.give_up()
            self.end()

    def end(self) -> None:
        self.ended = datetime.now(UTC)
        self.records.update(self.id, self.state)


def router(server: Server, records: BatchRecords) -> APIRouter:
    """The endpoints; batches of an earlier server go on when this one starts."""
    routes = APIRouter(tags=["Anthropic"], responses=error_responses(AnthropicError))
    jobs: dict[str, _Job] = {}

    def resume(app: ASGIApp) -> None:
        for job in jobs.values():
            job.resume(app, server)

    server.batches_folder.when_claimed(
        lambda: jobs.update((job.id, job) for job in _stored(records)), resume
    )

    def found(batch_id: str) -> _Job:
        if batch_id not in jobs:
            raise ApiError(404, f"there is no batch {batch_id!r:.60}")
        return jobs[batch_id]

    @routes.post("/v1/messages/batches")
    async def create(body: BatchBody, http: HttpRequest) -> MessageBatch:
        """Begin a batch; its messages are generated in the background."""
        check_parameters(body, record_of(http.scope), server.options)
        _check(body)
        _make_room(jobs, records)
        requests = [
            BatchRequest(each.custom_id, "/v1/messages", each.params) for each in body.requests
        ]
        job = _Job(new_id("msgbatch_"), BatchRun(requests), records, datetime.now(UTC))
        await run_in_thread(records.create, job.id, job.state, requests)
        jobs[job.id] = job
        job.start(http.app, server)
        return job.now(http)

    @routes.get("/v1/messages/batches")
    async def batches(
        http: HttpRequest,
        limit: Annotated[int, Query(ge=1, le=1000)] = 20,
        after_id: str | None = None,
        before_id: str | None = None,
    ) -> BatchPage:
        """List the batches."""
        newest = list(reversed(jobs))
        for name, parameter in ((after_id, "after_id"), (before_id, "before_id")):
            if name is not None and name not in newest:
                raise ApiError(400, f"there is no batch {name!r:.60}", param=parameter)
        if after_id is not None:
            newest = newest[newest.index(after_id) + 1 :]
        if before_id is not None:
            newest = newest[: newest.index(before_id)][-limit:]
        page = newest[:limit]
        return BatchPage(
            data=[jobs[name].now(http) for name in page],
            first_id=page[0] if page else None,
            last_id=page[-1] if page else None,
            has_more=len(newest) > limit,
        )

    @routes.get("/v1/messages/batches/{batch_id}")
    async def retrieve(batch_id: str, http: HttpRequest) -> MessageBatch:
        """One batch."""
        return found(batch_id).now(http)

    @routes.post("/v1/messages/batches/{batch_id}/cancel")
    async def cancel(batch_id: str, http: HttpRequest) -> MessageBatch:
        """Cancel a batch; what is answered already stays."""
        job = found(batch_id)
        if job.ended is None and job.cancelled is None:
            job.cancelled = datetime.now(UTC)
            records.update(job.id, job.state)
            job.run.cancel()
        return job.now(http)

    @routes.delete("/v1/messages/batches/{batch_id}")
    async def delete(batch_id: str) -> DeletedBatch:
        """Delete a batch that has ended, with its results."""
        if found(batch_id).ended is None:
            raise ApiError(400, "the batch is still running; cancel it first")
        records.remove(batch_id)
        del jobs[batch_id]
        return DeletedBatch(id=batch_id)

    @routes.get(
        "/v1/messages/batches/{batch_id}/results",
        name="message_batch_results",
        response_class=Response,
    )
    async def results(batch_id: str) -> Response:
        """The results of a batch that has ended, a line of JSON for each request."""
        job = found(batch_id)
        if job.ended is None:
            raise ApiError(400, "the batch has not ended yet; its processing_status says when")
        lines = (
            json.dumps({"custom_id": request.custom_id, "result": _result(job.run.answers[number])})
            for number, request in enumerate(job.run.requests)
        )
        return Response("".join(f"{line}\n" for line in lines), media_type="application/x-jsonl")

    return routes


def _check(body: BatchBody) -> None:
    ids = [request.custom_id for request in body.requests]
    if len(set(ids)) < len(ids):
        twice = next(each for each in ids if ids.count(each) > 1)
        raise ApiError(400, f"custom_id {twice!r} occurs twice", param="requests")
    if any(request.params.get("stream") for request in body.requests):
        raise ApiError(400, "a message of a batch cannot be streamed", param="requests")


def _stored(records: BatchRecords) -> Iterator[_Job]:
    """The batches of an earlier server."""
    for found in records.load():
        run = BatchRun(found.requests, found.answers)
        created, ended, cancelled = (
            None if (text := found.state[name]) is None else datetime.fromisoformat(text)
            for name in ("created_at", "ended", "cancelled")
        )
        assert created is not None
        if ended is not None:
            run.give_up()
        yield _Job(found.state["id"], run, records, created, ended, cancelled)


def _make_room(jobs: dict[str, _Job], records: BatchRecords) -> None:
    """Forget the oldest batch that has ended, if there are too many."""
    if len(jobs) < _MOST_BATCHES:
        return
    ended = [name for name, job in jobs.items() if job.ended is not None]
    if not ended:
        raise ApiError(429, f"{_MOST_BATCHES} batches are running", retry=True)
    records.remove(ended[0])
    del jobs[ended[0]]


def _outcome(answer: Answer) -> Literal["succeeded", "errored", "canceled"]:
    if answer.status is None:
        return "canceled"
    return "succeeded" if answer.is_success else "errored"


def _result(answer: Answer) -> dict[str, object]:
    outcome = _outcome(answer)
    match outcome:
        case "succeeded":
            return {"type": outcome, "message": answer.body}
        case "errored":
            return {"type": outcome, "error": answer.body}
        case _:
            return {"type": outcome}
