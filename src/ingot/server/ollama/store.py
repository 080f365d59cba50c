"""`/api/pull` and `/api/delete`: a server has the models that it was started with.

Clients pull a model before they use it, so pulling a model that is served succeeds. Anything else
would change files of the machine, which is not for clients to do.
"""

from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot.server.catalog import UnknownModelError
from ingot.server.error_bodies import OllamaError
from ingot.server.errors import ApiError
from ingot.server.http.access_log import record_of
from ingot.server.http.event_stream import LINES, STREAMED_LINES, line
from ingot.server.http.json_response import JsonResponse
from ingot.server.ollama.models import NamedBody
from ingot.server.parameters import check_parameters
from ingot.server.state import Server

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


def router(server: Server) -> APIRouter:
    """The endpoints."""
    routes = APIRouter(responses=_REFUSED)

    @routes.post("/api/pull", response_model=Pulled, responses=STREAMED_LINES)
    async def pull(body: PullBody, http: HttpRequest) -> Response:
        """Download a model; this succeeds only for a model that is served already."""
        check_parameters(body, record_of(http.scope), server.options)
        if server.catalog.find_exactly(body.wanted) is None:
            raise ApiError(
                403,
                f"this server does not download models for clients; run `ingot pull` on its "
                f"machine and serve {body.wanted!r:.60} with -m",
            )
        done = Pulled().model_dump()
        if body.stream is False:
            return JsonResponse(done)
        return Response(line(done), media_type=LINES)

    @routes.delete("/api/delete", response_model=None, status_code=403)
    async def delete(body: NamedBody) -> Response:
        """Delete a model; this is always refused."""
        if server.catalog.find_exactly(body.wanted) is None:
            raise UnknownModelError(f"there is no model {body.wanted!r:.60}")
        raise ApiError(
            403, "this server does not delete files for clients; delete them on its machine"
        )

    return routes
