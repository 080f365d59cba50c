"""llama-server's own endpoints under its names, for its clients."""

from fastapi import APIRouter

from ingot.server.error_bodies import LlamaError, error_responses
from ingot.server.llama import completion, embedding, props, rerank, slots, tokenize
from ingot.server.state import Server


def router(server: Server) -> APIRouter:
    """All endpoints of llama-server."""
    routes = APIRouter(tags=["llama-server"], responses=error_responses(LlamaError))
    for part in (completion, embedding, props, rerank, slots, tokenize):
        routes.include_router(part.router(server))
    return routes
