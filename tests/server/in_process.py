"""A server in the process of the tests, for what would be slow over a socket; or on Ray."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from serving import PATIENCE

from ingot.engine import EngineOptions
from ingot.server import ServedModel, ServerOptions
from ingot.server.app import application
from ingot.server.state import Server


@asynccontextmanager
async def asgi_client(
    path: Path, served: dict[str, object] | None = None, **options: object
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that is called directly; what it raises comes through.

    `served` are fields of `ServedModel`, the other options those of `ServerOptions`. In
    `make test-ray` two replicas on Ray answer the same requests; only the second of two servers at
    once is called directly there, too.
    """
    fields = {"engine": EngineOptions(threads=1), **(served or {})}
    model = ServedModel(name="tiny", path=path, **fields)
    given = ServerOptions(models=(model,), **options)
    if "--ray" in os.environ.get("INGOT_TEST_SERVE", ""):
        from two_replicas import is_free, two_replicas  # noqa: PLC0415

        if is_free():
            with two_replicas(given) as url:
                async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:
                    yield client
            return
    server = Server(given)
    transport = httpx.ASGITransport(application(server))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client
    finally:
        await server.close()
