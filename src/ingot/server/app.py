"""The ASGI application: the endpoints of all families, the middleware, the error responses."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TypedDict

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Match

from ingot import __version__
from ingot.errors import IngotError
from ingot.server import (
    anthropic,
    batches,
    health,
    llama,
    model_control,
    ollama,
    openai,
    page,
    vllm,
)
from ingot.server.error_bodies import error_body
from ingot.server.errors import ApiError, ClientGoneError, ErrorInfo, error_info
from ingot.server.http.json_response import JsonResponse
from ingot.server.http.middleware import CLIENT_CLOSED, RequestMiddleware
from ingot.server.mcp import endpoints as mcp
from ingot.server.options import ServerOptions
from ingot.server.state import Server


def create_app(options: ServerOptions) -> FastAPI:
    """An ASGI application that serves the models of the options until it shuts down."""
    return application(Server(options))


def application(server: Server) -> FastAPI:
    """The ASGI application of an existing `Server`."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await server.catalog.open_first()
        server.mcp.start()
        for start in server.at_start:
            start(app)
        watches = [
            asyncio.create_task(server.catalog.watch()),
            asyncio.create_task(server.history.watch()),
        ]
        try:
            yield
        finally:
            for watch in watches:
                watch.cancel()
            await server.close()

    app = FastAPI(
        title="Ingot",
        version=__version__,
        summary="Language models from GGUF files.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's page loads scripts from elsewhere; `page` has our own
        redoc_url=None,
    )
    # Routes are tried in this order: those that are asked for most come first, but after those of
    # model control, because /models/load is no model's name.
    for family in (model_control, openai, health, batches, anthropic, llama, ollama, vllm, mcp):
        app.include_router(family.router(server))
    app.include_router(page.router())
    for kind in (RequestValidationError, HTTPException, ApiError, ClientGoneError, IngotError):
        app.add_exception_handler(kind, _error_response)
    app.add_middleware(RequestMiddleware, server=server)
    if server.options.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            **_allowed_origins(server.options.cors_origins),
            allow_methods=["*"],
            allow_headers=["*"],
            allow_credentials=True,
            allow_private_network=True,
            expose_headers=["X-Request-Id"],
        )
    return app


class _AllowedOrigins(TypedDict, total=False):
    allow_origins: Sequence[str]
    allow_origin_regex: str


def _allowed_origins(origins: Sequence[str]) -> _AllowedOrigins:
    """The origins for the middleware. It names the origin that asked, because browsers refuse `*`
    in answers to requests with credentials."""
    return {"allow_origin_regex": ".*"} if "*" in origins else {"allow_origins": origins}


async def _error_response(request: HttpRequest, error: Exception) -> Response:
    """An error's response, in the form of the endpoint's family."""
    match error:
        case ClientGoneError():
            return Response(status_code=CLIENT_CLOSED)
        case RequestValidationError():
            info = _invalid(error, request.headers.get("content-type", ""))
        case HTTPException():
            info = ErrorInfo(error.status_code, _http_message(error, request))
        case _:
            info = error_info(error)
    headers = dict(getattr(error, "headers", None) or {}) | dict(info.headers)
    if info.status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_methods(request))
    return JsonResponse(error_body(request.url.path, info), info.status, headers=headers)


def _methods(request: HttpRequest) -> list[str]:
    """The methods that a path allows; each may have its own route."""
    found = [
        method
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.routes
        )
    ]
    if len(found) > 1:  # a route with parameters may match a path that is described by itself
        described = request.app.openapi()["paths"].get(request.url.path, {})
        found = [method for method in found if method.lower() in described] or found
    return found


def _invalid(error: RequestValidationError, content_type: str) -> ErrorInfo:
    """What is wrong with a body, and where: the most deeply nested of pydantic's findings."""
    found = max(error.errors(), key=lambda each: len(each["loc"]))
    if found["type"] == "json_invalid":
        return ErrorInfo(400, f"the body is not valid JSON: {found['ctx']['error']}")
    if found["loc"] == ("body",) and "json" not in content_type.lower():
        return ErrorInfo(400, "a JSON body is required, with Content-Type: application/json")
    name = ".".join(str(part) for part in found["loc"] if _is_place(part))
    return ErrorInfo(400, f"{name or 'the body'}: {found['msg']}", param=name or None)


_TYPES = frozenset({"body", "query", "path", "bool", "dict", "float", "int", "none", "str"})


def _is_place(part: int | str) -> bool:
    """Whether part of a location is a field or an index, not one type of a union."""
    return isinstance(part, int) or (part.isidentifier() and part.islower() and part not in _TYPES)


def _http_message(error: HTTPException, request: HttpRequest) -> str:
    match error.status_code:
        case 404:
            return f"there is nothing at {request.url.path}"
        case 405:
            return f"{request.url.path} does not allow {request.method}"
        case 400 if error.__cause__ is not None:  # FastAPI's own message leaves the cause out
            return f"the body is not valid JSON: {error.__cause__}"
        case _:
            return str(error.detail)
