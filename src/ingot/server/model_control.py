"""`/models/load`, `/models/unload` and `/models/sse`: models opened and closed by a client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Literal

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel
from starlette.responses import Response

from ingot.errors import IngotError
from ingot.server.error_bodies import OpenAIError, error_responses
from ingot.server.http.event_stream import WatchStream, event
from ingot.server.sampling_body import Body
from ingot.server.state import Server

_LOOK_SECONDS = 1.0  # between two looks whether the server is about to stop
_QUIET_LOOKS = 15  # after so many without an event, a comment keeps the connection alive


class ModelBody(Body):
    """The name of a model."""

    model: str


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
    async def load(body: ModelBody) -> Done:
        """Begin to load a model; its status and the events say when it is loaded."""
        task = asyncio.create_task(load_now(server.catalog.find(body.model).name))
        loading.add(task)
        task.add_done_callback(loading.discard)
        return Done()

    @routes.post("/models/unload", responses={409: {"model": OpenAIError}})
    async def unload(body: ModelBody) -> Done:
        """Close a model. The next request to it opens it again."""
        await server.catalog.unload(body.model)
        return Done()

    @routes.get("/models/load", include_in_schema=False)
    @routes.get("/models/unload", include_in_schema=False)
    async def refuse_get() -> None:
        """Keep `GET /models/{model}` from taking these for names of models."""
        raise HTTPException(405, "use POST", {"Allow": "POST"})

    @routes.get("/models/sse", include_in_schema=False)  # it does not end
    async def watch() -> Response:
        """The status of all models, then an event for every change."""
        return WatchStream(_changes(server))

    return routes


async def _changes(server: Server) -> AsyncIterator[bytes]:
    with server.catalog.events.subscribed() as queue:
        for entry in [*server.catalog.entries.values()]:
            data = {"status": entry.status}
            yield event({"model": entry.name, "event": "model_status", "data": data})
        quiet = 0
        while not server.draining:
            try:
                yield event(await asyncio.wait_for(queue.get(), _LOOK_SECONDS))
                quiet = 0
            except TimeoutError:
                quiet += 1
                if quiet % _QUIET_LOOKS == 0:
                    yield b": no change\n\n"
