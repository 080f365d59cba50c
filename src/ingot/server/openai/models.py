"""`/v1/models`: the models of the server."""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from ingot.server.catalog import Entry
from ingot.server.openai.shared import ERRORS
from ingot.server.state import Server


class Model(BaseModel):
    """A model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "ingot"


class ModelList(BaseModel):
    """All models."""

    object: Literal["list"] = "list"
    data: list[Model]


def router(server: Server) -> APIRouter:
    """The endpoints."""
    routes = APIRouter(responses=ERRORS)

    @routes.get("/v1/models")
    async def models() -> ModelList:
        """List the models."""
        return ModelList(data=[_model(entry) for entry in server.catalog.entries.values()])

    @routes.get("/v1/models/{name:path}")
    async def model(name: str) -> Model:
        """One model."""
        return _model(server.catalog.find(name))

    return routes


def _model(entry: Entry) -> Model:
    return Model(id=entry.name, created=entry.listed)
