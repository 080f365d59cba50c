"""OpenAI's endpoints."""

from fastapi import APIRouter

from ingot.server.openai import chat, completions, embeddings, models, responses
from ingot.server.state import Server


def router(server: Server) -> APIRouter:
    """All endpoints of OpenAI's API."""
    routes = APIRouter(tags=["OpenAI"])
    for part in (chat, completions, embeddings, models, responses):
        routes.include_router(part.router(server))
    return routes
