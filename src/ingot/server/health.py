"""`/health`, `/ready`, `/version`, `/metrics`, `/api/status`: for supervisors and dashboards."""

import time
from collections.abc import Iterator
from dataclasses import asdict

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from ingot import __version__
from ingot.api import LLM
from ingot.server.errors import stopping_error
from ingot.server.model_entry import Entry
from ingot.server.state import Server
from ingot.server.status_history import Counts


class Health(BaseModel):
    """The server can respond."""

    status: str = "ok"


class Version(BaseModel):
    """The version of Ingot."""

    version: str = __version__


class RequestStatus(BaseModel):
    """A request that is running or waiting."""

    id: str
    state: str
    prompt_tokens: int
    generated_tokens: int
    seconds: float
    queue_seconds: float
    prompt_seconds: float
    generation_seconds: float


class EndedRequest(BaseModel):
    """A request that has ended, and the seconds since then."""

    id: str
    model: str
    age: float
    prompt_tokens: int
    reused_tokens: int
    generated_tokens: int
    queue_seconds: float
    prompt_seconds: float
    generation_seconds: float


class GpuStatus(BaseModel):
    """The part of a model on a GPU."""

    device: str
    layers: int
    of_layers: int
    allocations: int
    allocated_bytes: int
    sent_bytes: int
    sent_seconds: float
    decoded: list[str]  # tensor types that are dequantized to half precision there


class ModelStatus(BaseModel):
    """A model and its engine's counters; a closed model only has a name."""

    name: str
    loaded: bool
    context: int | None = None
    slots: int = 0
    running: int = 0
    waiting: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    generated_tokens: int = 0
    text_steps: int = 0  # steps that gave a request tokens, summed over the requests
    guessed_tokens: int = 0  # by speculation
    accepted_tokens: int = 0  # of those, which were right
    preemptions: int = 0
    step_seconds: float = 0.0  # since the current step began
    cache_blocks: int = 0
    cache_blocks_held: int = 0
    cache_blocks_kept: int = 0
    gpu: GpuStatus | None = None
    requests: list[RequestStatus] = []


class Status(BaseModel):
    """The state of the server."""

    uptime_seconds: float
    models: list[ModelStatus]
    ended: list[EndedRequest]  # the last ones, oldest first


class PastSample(BaseModel):
    """The counters of the open models, and the seconds since then."""

    age: float
    models: dict[str, dict[str, int]]


class PastStatus(BaseModel):
    """The last two minutes, oldest first."""

    samples: list[PastSample]


def router(server: Server) -> APIRouter:
    """The endpoints for supervisors."""
    routes = APIRouter(tags=["Health"])

    @routes.get(
        "/health",
        responses={503: {"description": "A model has failed, hangs, or its file was changed."}},
    )
    @routes.get("/v1/health", include_in_schema=False)
    async def health() -> Health:
        """Whether all open models work; if not, why."""
        server.catalog.check()
        return Health()

    @routes.get(
        "/ready", responses={503: {"description": "The server is stopping, or a model has failed."}}
    )
    async def ready() -> Health:
        """Whether the server accepts requests: it does not while it stops."""
        if server.draining:
            raise stopping_error()
        server.catalog.check()
        return Health()

    @routes.get("/version")
    async def version() -> Version:
        """The version of the server."""
        return Version()

    @routes.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Metrics in Prometheus's text format."""
        return Response(server.metrics.text(), media_type="text/plain; version=0.0.4")

    @routes.get("/api/status")
    async def status() -> Status:
        """What the dashboard of the page shows."""
        models = [_model_status(server, entry) for entry in server.catalog.entries.values()]
        uptime = time.monotonic() - server.started
        return Status(uptime_seconds=uptime, models=models, ended=[*_ended(server)])

    @routes.get("/api/status/history")
    async def history() -> PastStatus:
        """The counters of the last two minutes, once a second, under the names of the status."""
        samples = [
            PastSample(
                age=server.history.age(sample.at),
                models={name: _named(counts) for name, counts in sample.models.items()},
            )
            for sample in server.history.samples
        ]
        return PastStatus(samples=samples)

    return routes


def _named(counts: Counts) -> dict[str, int]:
    """Counters under the names of `ModelStatus`."""
    return {
        f"cache_{name}" if name.startswith("blocks") else name: value
        for name, value in asdict(counts).items()
    }


def _ended(server: Server) -> Iterator[EndedRequest]:
    for ended in server.history.ended:
        timings = ended.timings
        yield EndedRequest(
            id=ended.id,
            model=ended.model,
            age=server.history.age(ended.at),
            prompt_tokens=timings.prompt_tokens,
            reused_tokens=timings.reused_tokens,
            generated_tokens=timings.generated_tokens,
            queue_seconds=timings.queue_seconds,
            prompt_seconds=timings.prompt_seconds,
            generation_seconds=timings.generation_seconds,
        )


def _model_status(server: Server, entry: Entry) -> ModelStatus:
    if entry.llm is None:
        return ModelStatus(name=entry.name, loaded=False)
    stats = entry.llm.stats
    now = time.perf_counter()
    requests = [
        RequestStatus(
            id=generation.record.id,
            state=request.state,
            prompt_tokens=request.timings.prompt_tokens,
            generated_tokens=request.timings.generated_tokens,
            seconds=now - generation.record.started,
            queue_seconds=request.timings.queue_seconds,
            prompt_seconds=request.timings.prompt_seconds,
            generation_seconds=request.timings.generation_seconds,
        )
        for generation in server.generations
        if generation.model == entry.name
        for request in generation.requests
    ]
    return ModelStatus(
        name=entry.name,
        loaded=True,
        context=entry.llm.context,
        slots=entry.llm.engine.max_running,
        running=stats.running,
        waiting=stats.waiting,
        steps=stats.steps,
        prompt_tokens=stats.prompt_tokens,
        reused_tokens=stats.reused_tokens,
        generated_tokens=stats.generated_tokens,
        text_steps=stats.text_steps,
        guessed_tokens=stats.guessed_tokens,
        accepted_tokens=stats.accepted_tokens,
        preemptions=stats.preemptions,
        step_seconds=stats.step_seconds,
        cache_blocks=stats.blocks,
        cache_blocks_held=stats.blocks_held,
        cache_blocks_kept=stats.blocks_kept,
        gpu=_gpu_status(entry.llm),
        requests=requests,
    )


def _gpu_status(llm: LLM) -> GpuStatus | None:
    gpu = llm.engine.model.gpu
    if gpu is None:
        return None
    return GpuStatus(
        device=gpu.device,
        layers=gpu.layers,
        of_layers=gpu.of_layers,
        allocations=gpu.allocations,
        allocated_bytes=gpu.allocated,
        sent_bytes=gpu.sent,
        sent_seconds=gpu.seconds,
        decoded=list(gpu.decoded),
    )
