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
async def asgi_client(path: Path, **options: object) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that is called directly; what it raises comes through."""
    model = ServedModel(name="tiny", path=path, engine=EngineOptions(threads=1))
    server = Server(ServerOptions(models=(model,), **options))
    transport = httpx.ASGITransport(application(server))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client
    finally:
        await server.close()
