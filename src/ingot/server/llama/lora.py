"""`/lora-adapters`: there are none, and the empty list of them can be set."""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from ingot.server.body_limits import Few
from ingot.server.errors import ApiError
from ingot.server.sampling_body import Body, Number
from ingot.server.state import Server


class AdapterScale(Body):
    """How much of an adapter is used."""

    id: int
    scale: Number


class Adapter(BaseModel):
    """An adapter."""

    id: int
    path: str
    scale: float


class Success(BaseModel):
    """It is done."""

    success: Literal[True] = True


def router(_: Server) -> APIRouter:
    """The endpoints."""
    made = APIRouter()

    @made.get("/lora-adapters")
    async def adapters() -> list[Adapter]:
        """The adapters of the model."""
        return []

    @made.post("/lora-adapters")
    async def set_adapters(body: Few[AdapterScale]) -> Success:
        """Say how much of each is used."""
        if body:
            raise ApiError(400, f"there is no adapter {body[0].id}: this server has none")
        return Success()

    return made
