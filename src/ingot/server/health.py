"""`/health`, `/ready`, `/version`, `/metrics` and `/api/status`: for supervisors and dashboards."""

import time

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from ingot import __version__
from ingot.api import LLM
from ingot.server.errors import stopping_error
from ingot.server.model_entry import Entry
from ingot.server.state import Server


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
        return Status(uptime_seconds=uptime, models=models)

    return routes


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
        )
        for generation in server.generations
        if generation.model == entry.name
        for request in generation.requests
    ]
    return ModelStatus(
        name=entry.name,
        loaded=True,
        context=entry.llm.context,
        slots=entry.llm.engine.options.max_running,
        running=stats.running,
        waiting=stats.waiting,
        steps=stats.steps,
        prompt_tokens=stats.prompt_tokens,
        reused_tokens=stats.reused_tokens,
        generated_tokens=stats.generated_tokens,
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
