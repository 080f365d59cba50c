"""`/v1/models`: the models of the server."""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from ingot.server.catalog import LATEST, Entry
from ingot.server.model_facts import ModelFacts, context_of
from ingot.server.openai.shared import ERRORS
from ingot.server.state import Server


class ModelState(BaseModel):
    """Whether a model is loaded."""

    value: Literal["loaded", "unloaded"]


class Meta(BaseModel):
    """A model in numbers, under llama-server's names."""

    n_vocab: int
    n_ctx_train: int
    n_embd: int
    n_params: int
    size: int  # bytes of its files
    architecture: str
    quantization: str


class Model(BaseModel):
    """A model. The fields after `status` are null if its file cannot be read."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "ingot"
    aliases: list[str]
    status: ModelState
    capabilities: list[str] | None = None
    context_length: int | None = None  # of the loaded model, or the most that its file allows
    max_model_len: int | None = None  # the same, under vLLM's name
    size: int | None = None
    meta: Meta | None = None


class ModelList(BaseModel):
    """All models."""

    object: Literal["list"] = "list"
    data: list[Model]


def router(server: Server) -> APIRouter:
    """The endpoints."""
    routes = APIRouter(responses=ERRORS)

    async def described(entry: Entry) -> Model:
        return _model(entry, await server.facts.read_if_possible(entry.model.path))

    @routes.get("/v1/models")
    @routes.get("/models", include_in_schema=False)
    async def models() -> ModelList:
        """List the models."""
        return ModelList(data=[await described(each) for each in server.catalog.entries.values()])

    @routes.get("/v1/models/{name:path}")
    @routes.get("/models/{name:path}", include_in_schema=False)
    async def model(name: str) -> Model:
        """One model."""
        return await described(server.catalog.find(name))

    return routes


def _model(entry: Entry, facts: ModelFacts | None) -> Model:
    model = Model(
        id=entry.name,
        created=entry.listed,
        aliases=[f"{entry.name}{LATEST}"],
        status=ModelState(value="unloaded" if entry.llm is None else "loaded"),
    )
    if facts is None:
        return model
    context = context_of(facts, entry.llm)
    return model.model_copy(
        update={
            "capabilities": list(facts.capabilities),
            "context_length": context,
            "max_model_len": context,
            "size": facts.size,
            "meta": Meta(
                n_vocab=facts.vocabulary,
                n_ctx_train=facts.context_length,
                n_embd=facts.embedding_length,
                n_params=facts.parameters,
                size=facts.size,
                architecture=facts.architecture,
                quantization=facts.quantization,
            ),
        }
    )
