"""A server in the process of the tests, for what would be slow over a socket."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from ingot.engine import EngineOptions
from ingot.server import ServedModel, ServerOptions
from ingot.server.app import application
from ingot.server.state import Server


@asynccontextmanager
async def asgi_client(
    path: Path, served: dict[str, object] | None = None, **options: object
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that is called directly; what it raises comes through.

    `served` are fields of `ServedModel`, the other options those of `ServerOptions`.
    """
    fields = {"engine": EngineOptions(threads=1), **(served or {})}
    model = ServedModel(name="tiny", path=path, **fields)
    server = Server(ServerOptions(models=(model,), **options))
    transport = httpx.ASGITransport(application(server))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client
    finally:
        await server.close()
