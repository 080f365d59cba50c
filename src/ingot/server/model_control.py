"""`/models/load`, `unload`, `download` and `sse`: models opened, closed and fetched by a client.

What happens to the models is a stream of events. Downloads are off unless the server allows them.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, Field
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot.errors import IngotError, StoreError
from ingot.server.body_limits import Name
from ingot.server.downloads import EVENT, DownloadState
from ingot.server.error_bodies import OpenAIError, error_responses
from ingot.server.errors import ApiError
from ingot.server.http.access_log import record_of
from ingot.server.http.event_stream import WatchStream, event
from ingot.server.parameters import check_parameters
from ingot.server.sampling_body import RequestBody
from ingot.server.state import Server

_LOOK_SECONDS = 1.0  # between two looks whether the server is about to stop
_QUIET_LOOKS = 15  # after so many without an event, a comment keeps the connection alive


class ModelBody(RequestBody):
    """The name of a model."""

    model: str


class DownloadBody(RequestBody):
    """The name of a model to download, as `ingot pull` takes it."""

    model: Annotated[Name, Field(min_length=1)]


class RunningDownload(BaseModel):
    """A download that has not ended."""

    model: str
    data: DownloadState


class DownloadList(BaseModel):
    """Whether clients may have models downloaded, and the downloads under way."""

    allowed: bool
    data: list[RunningDownload]


class Done(BaseModel):
    """The request succeeded."""

    success: Literal[True] = True


def router(server: Server) -> APIRouter:
    """The endpoints."""
    routes = APIRouter(tags=["llama-server"], responses=error_responses(OpenAIError))
    loading: set[asyncio.Task[None]] = set()

    async def load_now(name: str) -> None:
        with suppress(IngotError, OSError):  # the status of the model says what happened
            (await server.catalog.lease(name)).release()

    @routes.post("/models/load")
    async def load(body: ModelBody, http: HttpRequest) -> Done:
        """Begin to load a model; its status and the events say when it is loaded."""
        check_parameters(body, record_of(http.scope), server.options)
        task = asyncio.create_task(load_now(server.catalog.find(body.model).name))
        loading.add(task)
        task.add_done_callback(loading.discard)
        return Done()

    @routes.post("/models/unload", responses={409: {"model": OpenAIError}})
    async def unload(body: ModelBody, http: HttpRequest) -> Done:
        """Close a model. The next request to it opens it again."""
        check_parameters(body, record_of(http.scope), server.options)
        await server.catalog.unload(body.model)
        return Done()

    @routes.get("/models/downloads")
    async def downloads() -> DownloadList:
        """Whether clients may have models downloaded, and the downloads under way."""
        running = [RunningDownload(model=each.name, data=each.state) for each in server.downloads]
        return DownloadList(allowed=server.options.allow_downloads, data=running)

    @routes.post("/models/download", responses={403: {"model": OpenAIError}})
    async def download(body: DownloadBody, http: HttpRequest) -> Done:
        """Begin to download a model of the hub or of Ollama; the events say how far it is."""
        check_parameters(body, record_of(http.scope), server.options)
        server.require_downloads()
        with _bad_names():
            server.downloads.begin(body.model)
        return Done()

    @routes.post("/models/download/cancel", responses={403: {"model": OpenAIError}})
    async def cancel(body: DownloadBody, http: HttpRequest) -> Done:
        """Cancel a download; what has arrived stays for the next one."""
        check_parameters(body, record_of(http.scope), server.options)
        server.require_downloads()
        with _bad_names():
            if not server.downloads.cancel(body.model):
                raise ApiError(404, f"{body.model!r:.80} is not being downloaded", param="model")
        return Done()

    @routes.get("/models/load", include_in_schema=False)
    @routes.get("/models/unload", include_in_schema=False)
    @routes.get("/models/download", include_in_schema=False)
    @routes.get("/models/download/cancel", include_in_schema=False)
    async def refuse_get() -> None:
        """Keep `GET /models/{model}` from taking these for names of models."""
        raise HTTPException(405, "use POST", {"Allow": "POST"})

    @routes.get("/models/sse", include_in_schema=False)  # it does not end
    async def watch() -> Response:
        """The status of all models, then an event for every change."""
        return WatchStream(_changes(server))

    return routes


@contextmanager
def _bad_names() -> Iterator[None]:
    """Turn the error of a name into one that a client understands."""
    try:
        yield
    except StoreError as error:
        raise ApiError(400, str(error), param="model") from None


async def _changes(server: Server) -> AsyncIterator[bytes]:
    with server.catalog.events.subscribed() as queue:
        for entry in [*server.catalog.entries.values()]:
            data = {"status": entry.status}
            yield event({"model": entry.name, "event": "model_status", "data": data})
        for download in server.downloads:
            yield event({"model": download.name, "event": EVENT, "data": asdict(download.state)})
        quiet = 0
        while not server.draining:
            try:
                yield event(await asyncio.wait_for(queue.get(), _LOOK_SECONDS))
                quiet = 0
            except TimeoutError:
                quiet += 1
                if quiet % _QUIET_LOOKS == 0:
                    yield b": no change\n\n"
