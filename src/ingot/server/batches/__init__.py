"""Batches: many requests sent at once and answered later, in the forms of OpenAI and Anthropic.

The requests of a batch go through the same endpoints as any other. Files, batches and results are
kept in memory while the server runs, or in `--batches-path`, which one server uses at a time.
"""

from fastapi import APIRouter, Depends
from starlette.requests import Request as HttpRequest

from ingot.server.batches import anthropic_batches, files, openai_batches
from ingot.server.batches.files import FileStore
from ingot.server.batches.records import BatchRecords
from ingot.server.state import Server


def router(server: Server) -> APIRouter:
    """All endpoints of files and batches."""
    folder = server.batches_folder

    async def is_ours(http: HttpRequest) -> None:
        folder.require(http.app)

    routes = APIRouter(dependencies=[Depends(is_ours)])
    store = FileStore(folder.part("files"))
    folder.when_claimed(store.load)
    ours, theirs = (BatchRecords(folder.part(name)) for name in ("batches", "message_batches"))
    routes.include_router(files.router(store))
    routes.include_router(openai_batches.router(server, store, ours))
    routes.include_router(anthropic_batches.router(server, theirs))
    folder.claim()
    server.at_start.append(folder.resume)
    return routes
