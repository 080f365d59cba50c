"""Ollama's endpoints under `/api/`, for its clients."""

from fastapi import APIRouter

from ingot.server.error_bodies import OllamaError, error_responses
from ingot.server.ollama import chat, embed, generate, models, store
from ingot.server.state import Server


def router(server: Server) -> APIRouter:
    """All endpoints of Ollama's API."""
    routes = APIRouter(tags=["Ollama"], responses=error_responses(OllamaError))
    for part in (chat, generate, embed, models, store):
        routes.include_router(part.router(server))
    return routes
