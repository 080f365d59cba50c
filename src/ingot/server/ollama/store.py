"""`/api/pull` and `/api/delete`: clients download and delete models, if the server allows it.

Clients pull a model before they use it, so pulling a model that is served succeeds at once. Only
models of the store can be deleted, not those that the server was started with.
"""

from collections.abc import AsyncIterator
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot import store
from ingot.errors import QueueFullError, StoreError
from ingot.server.catalog import UnknownModelError
from ingot.server.downloads import EVENT, DownloadState, downloadable
from ingot.server.error_bodies import OllamaError
from ingot.server.errors import ApiError
from ingot.server.generation import while_connected
from ingot.server.http.access_log import record_of
from ingot.server.http.event_stream import LINES, STREAMED_LINES, WatchStream, line
from ingot.server.http.json_response import JsonResponse
from ingot.server.ollama.models import NamedBody
from ingot.server.parameters import check_parameters
from ingot.server.state import Server
from ingot.server.threads import run_in_thread

_REFUSED: dict[int | str, dict[str, Any]] = {
    403: {"model": OllamaError, "description": "The server does not do this for clients."}
}


class PullBody(NamedBody):
    """A model to download."""

    stream: bool | None = None
    insecure: bool | None = None


class Pulled(BaseModel):
    """The model is here."""

    status: Literal["success"] = "success"
    warnings: list[str] | None = None  # about parameters that were ignored


def router(server: Server) -> APIRouter:
    """The endpoints."""
    routes = APIRouter(responses=_REFUSED)

    @routes.post("/api/pull", response_model=Pulled, responses=STREAMED_LINES)
    async def pull(body: PullBody, http: HttpRequest) -> Response:
        """Download a model; a server that downloads nothing has only those that it serves."""
        record = record_of(http.scope)
        check_parameters(body, record, server.options)
        done = Pulled(warnings=record.warnings or None).model_dump(exclude_none=True)
        if server.catalog.find_exactly(body.wanted) is not None:
            return (
                JsonResponse(done)
                if body.stream is False
                else Response(line(done), media_type=LINES)
            )
        server.require_downloads()
        try:
            downloadable(body.wanted)
        except StoreError as error:
            raise ApiError(400, str(error), param="model") from None
        told = _told(server, body.wanted, done)
        if body.stream is not False:
            return WatchStream((line(each) async for each in told), LINES)
        last = await while_connected(http.receive, _last(told))
        if "error" in last:
            raise ApiError(502, str(last["error"]), param="model")
        return JsonResponse(done)

    @routes.delete("/api/delete", responses={409: {"model": OllamaError}})
    async def delete(body: NamedBody, http: HttpRequest) -> None:
        """Delete a model of the store from the disk."""
        check_parameters(body, record_of(http.scope), server.options)
        entry = server.catalog.find_exactly(body.wanted)
        if entry is None:
            raise UnknownModelError(f"there is no model {body.wanted!r:.60}")
        if not server.options.allow_deletes:
            raise ApiError(
                403,
                "this server does not delete models for clients: start it with --allow-deletes, "
                "or run `ingot rm` on its machine",
            )
        stored = {each.name: each.path for each in await run_in_thread(store.list_models)}
        if entry.model in server.options.models or stored.get(entry.name) != entry.model.path:
            raise ApiError(
                403, f"{entry.name!r:.60} is not a model of the store; delete its file yourself"
            )
        try:
            await server.catalog.remove(entry)
        except StoreError as error:
            raise ApiError(403, str(error), param="model") from None

    return routes


async def _told(
    server: Server, name: str, success: dict[str, object]
) -> AsyncIterator[dict[str, object]]:
    """What Ollama tells of a download. If the client leaves, and no other wants it, it ends."""
    with server.catalog.events.subscribed() as queue:
        try:
            download = server.downloads.begin(name)
        except QueueFullError as error:
            yield {"error": str(error)}
            return
        try:
            yield {"status": "pulling manifest"}
            while True:
                told = await queue.get()
                if (told["model"], told["event"]) != (download.name, EVENT):
                    continue
                state = DownloadState(**told["data"])
                match state.status:
                    case "done":
                        yield success
                        return
                    case "failed" | "cancelled":
                        yield {"error": state.error or "the download was cancelled"}
                        return
                    case "downloading" if state.stage:
                        sizes = {"total": state.total, "completed": state.done}
                        yield {"status": state.stage, **(sizes if state.total else {})}
        finally:
            server.downloads.leave(download)


async def _last(told: AsyncIterator[dict[str, object]]) -> dict[str, object]:
    last: dict[str, object] = {}
    async for each in told:
        last = each
    return last
