"""Batches: many requests sent at once and answered later, in the forms of OpenAI and Anthropic.

The requests of a batch go through the same endpoints as any other. Files, batches and results are
kept in memory while the server runs, or in `--batches-path`.
"""

from fastapi import APIRouter

from ingot.server.batches import anthropic_batches, files, openai_batches
from ingot.server.batches.files import FileStore
from ingot.server.batches.records import BatchRecords
from ingot.server.state import Server


def router(server: Server) -> APIRouter:
    """All endpoints of files and batches."""
    routes = APIRouter()
    folder = server.options.batches_folder
    store = FileStore(folder and folder / "files")
    ours, theirs = (
        BatchRecords(folder and folder / name) for name in ("batches", "message_batches")
    )
    routes.include_router(files.router(store))
    routes.include_router(openai_batches.router(server, store, ours))
    routes.include_router(anthropic_batches.router(server, theirs))
    return routes
