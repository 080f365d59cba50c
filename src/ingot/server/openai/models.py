"""`/v1/models`: the models of the server, in the form of OpenAI, llama-server and Anthropic."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel

from ingot.server.catalog import LATEST
from ingot.server.errors import ApiError
from ingot.server.model_entry import Entry, ModelStatus
from ingot.server.model_facts import ModelFacts, context_of
from ingot.server.openai.shared import ERRORS
from ingot.server.state import Server


class ModelState(BaseModel):
    """Whether a model is loaded; one that was closed because it was idle sleeps."""

    value: ModelStatus


class FailedState(ModelState):
    """The model could not be opened the last time."""

    failed: Literal[True] = True
    error: str


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
    type: Literal["model"] = "model"  # this and the next two: Anthropic's fields
    display_name: str
    created_at: datetime
    created: int
    owned_by: str = "ingot"
    parent: str | None = None  # of a LoRA adapter: its model
    aliases: list[str]
    status: ModelState | FailedState
    capabilities: list[str] | None = None
    context_length: int | None = None  # of the loaded model, or the most that its file allows
    max_model_len: int | None = None  # the same, under vLLM's name
    size: int | None = None
    meta: Meta | None = None


class ModelList(BaseModel):
    """All models, or a page of them; the fields after `data` are Anthropic's."""

    object: Literal["list"] = "list"
    data: list[Model]
    first_id: str | None
    last_id: str | None
    has_more: bool


def router(server: Server) -> APIRouter:
    """The endpoints."""
    routes = APIRouter(responses=ERRORS)

    async def described(name: str) -> Model:
        entry = server.catalog.find(name)
        made = _model(entry, await server.facts.read_if_possible(entry.model.path))
        adapter = server.catalog.adapter_of(entry, name)
        return made if adapter is None else _adapter(made, adapter)

    @routes.get("/v1/models")
    @routes.get("/models", include_in_schema=False)
    async def models(
        limit: Annotated[int, Query(ge=1, le=1000)] | None = None,
        after_id: str | None = None,
        before_id: str | None = None,
    ) -> ModelList:
        """List the models; the parameters ask for a page."""
        server.catalog.discover()
        entries = server.catalog.entries
        names = [name for entry in entries.values() for name in (entry.name, *entry.adapters)]
        names = list(dict.fromkeys(names))
        page, has_more = _page(names, limit, after_id, before_id)
        return ModelList(
            data=[await described(name) for name in page],
            first_id=page[0] if page else None,
            last_id=page[-1] if page else None,
            has_more=has_more,
        )

    @routes.get("/v1/models/{name:path}")
    @routes.get("/models/{name:path}", include_in_schema=False)
    async def model(name: str) -> Model:
        """One model."""
        return await described(name)

    return routes


def _page(
    names: Sequence[str], limit: int | None, after: str | None, before: str | None
) -> tuple[Sequence[str], bool]:
    """The names of a page, and whether there are more in its direction."""
    for name, parameter in ((after, "after_id"), (before, "before_id")):
        if name is not None and name not in names:
            raise ApiError(400, f"there is no model {name!r:.60}", param=parameter)
    if after is not None:
        names = names[names.index(after) + 1 :]
    if before is not None:
        names = names[: names.index(before)]
    count = len(names) if limit is None else limit
    page = names[-count:] if before is not None and after is None else names[:count]
    return page, len(page) < len(names)


def _adapter(model: Model, name: str) -> Model:
    """A LoRA adapter, which clients may name as their model."""
    changes = {"id": name, "display_name": name, "parent": model.id, "aliases": []}
    return model.model_copy(update=changes)


def _model(entry: Entry, facts: ModelFacts | None) -> Model:
    model = Model(
        id=entry.name,
        display_name=entry.name,
        created_at=datetime.fromtimestamp(entry.listed, UTC),
        created=entry.listed,
        aliases=[f"{entry.name}{LATEST}", *entry.model.aliases],
        status=ModelState(value=entry.status)
        if entry.failure is None
        else FailedState(value=entry.status, error=entry.failure),
    )
    if facts is None:
        return model
    context = context_of(facts, entry)
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
