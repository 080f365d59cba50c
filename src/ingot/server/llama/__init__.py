"""llama-server's own endpoints, with its names, so that its clients keep working."""

from fastapi import APIRouter

from ingot.server.llama import (
    completion,
    embedding,
    infill,
    lora,
    props,
    rerank,
    slots,
    template,
    tokens,
)
from ingot.server.llama.answers import ERRORS
from ingot.server.state import Server


def router(server: Server) -> APIRouter:
    """All of them."""
    made = APIRouter(tags=["llama-server"], responses=ERRORS)
    for part in (completion, embedding, infill, lora, props, rerank, slots, template, tokens):
        made.include_router(part.router(server))
    return made
