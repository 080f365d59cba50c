"""vLLM's own endpoints under its names, for its clients."""

from fastapi import APIRouter

from ingot.server.openai.shared import ERRORS
from ingot.server.state import Server
from ingot.server.vllm import lora, pooling, score, tokenizer_info


def router(server: Server) -> APIRouter:
    """All endpoints of vLLM that no other family has."""
    routes = APIRouter(tags=["vLLM"], responses=ERRORS)
    for part in (score, pooling, tokenizer_info, lora):
        routes.include_router(part.router(server))
    return routes
