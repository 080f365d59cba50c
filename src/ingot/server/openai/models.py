"""`/v1/models`: which models there are."""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from ingot.server.catalog import Entry
from ingot.server.openai.answers import ERRORS
from ingot.server.state import Server


class Model(BaseModel):
    """A model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "ingot"


class ModelList(BaseModel):
    """All of them."""

    object: Literal["list"] = "list"
    data: list[Model]


def router(server: Server) -> APIRouter:
    """The endpoints."""
    made = APIRouter(responses=ERRORS)

    @made.get("/v1/models")
    async def models() -> ModelList:
        """The models of this server."""
        return ModelList(data=[_model(entry) for entry in server.catalog.entries.values()])

    @made.get("/v1/models/{name:path}")
    async def model(name: str) -> Model:
        """One of them."""
        return _model(server.catalog.find(name))

    return made


def _model(entry: Entry) -> Model:
    return Model(id=entry.name, created=entry.listed)
