"""The application: all endpoints of a server, its gate and its way to tell errors."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Match

from ingot import __version__
from ingot.errors import IngotError
from ingot.server import anthropic, llama, openai, operations, page
from ingot.server.errors import ApiError, ClientGoneError, Facts, error_body, facts_of
from ingot.server.gate import CLIENT_CLOSED, Gate
from ingot.server.json_answer import JsonAnswer
from ingot.server.options import ServerOptions
from ingot.server.state import Server


def create_app(options: ServerOptions) -> FastAPI:
    """An ASGI application; its models are closed when it ends."""
    return application(Server(options))


def application(server: Server) -> FastAPI:
    """The same for a server that is there already."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        (await server.catalog.lease()).release()  # the first model, now: or say what is wrong
        watch = asyncio.create_task(server.catalog.watch())
        try:
            yield
        finally:
            watch.cancel()
            await server.close()

    app = FastAPI(
        title="Ingot",
        version=__version__,
        summary="Language models from GGUF files.",
        lifespan=lifespan,
        docs_url=None,  # it would load scripts from elsewhere; the page has its own
        redoc_url=None,
    )
    for family in (operations, openai, anthropic, llama):
        app.include_router(family.router(server))
    app.include_router(page.router())
    for kind in (RequestValidationError, HTTPException, ApiError, ClientGoneError, IngotError):
        app.add_exception_handler(kind, _tell)
    app.add_middleware(Gate, server=server)
    if server.options.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=server.options.cors_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["X-Request-Id"],
        )
    return app


async def _tell(request: HttpRequest, error: Exception) -> Response:
    """Answer with an error, in the shape of the endpoint's family."""
    match error:
        case ClientGoneError():
            return Response(status_code=CLIENT_CLOSED)
        case RequestValidationError():
            facts = _invalid(error, request.headers.get("content-type", ""))
        case HTTPException():
            facts = Facts(error.status_code, _said(error, request))
        case _:
            facts = facts_of(error)
    headers = dict(getattr(error, "headers", None) or {}) | dict(facts.headers)
    if facts.status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_methods(request))
    return JsonAnswer(error_body(request.url.path, facts), facts.status, headers=headers)


def _methods(request: HttpRequest) -> list[str]:
    """The methods that a path takes; each may have a route of its own."""
    return [
        method
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.routes
        )
    ]


def _invalid(error: RequestValidationError, content_type: str) -> Facts:
    """What is wrong with a body, and where: the deepest of what was found."""
    found = max(error.errors(), key=lambda each: len(each["loc"]))
    if found["type"] == "json_invalid":
        return Facts(400, f"the body is no JSON: {found['ctx']['error']}")
    if found["loc"] == ("body",) and "json" not in content_type.lower():
        return Facts(400, "the body must be JSON, and said to be: Content-Type: application/json")
    name = ".".join(str(part) for part in found["loc"] if _is_place(part))
    return Facts(400, f"{name or 'the body'}: {found['msg']}", param=name or None)


_TYPES = frozenset({"body", "query", "path", "bool", "dict", "float", "int", "none", "str"})


def _is_place(part: int | str) -> bool:
    """Whether part of a path is a name or a number, and not one of several types."""
    return isinstance(part, int) or (part.isidentifier() and part.islower() and part not in _TYPES)


def _said(error: HTTPException, request: HttpRequest) -> str:
    match error.status_code:
        case 404:
            return f"there is nothing at {request.url.path}"
        case 405:
            return f"{request.url.path} does not take {request.method}"
        case 400 if error.__cause__ is not None:  # which FastAPI keeps to itself
            return f"the body is no JSON: {error.__cause__}"
        case _:
            return str(error.detail)
