"""`/api/tags`, `/api/show`, `/api/ps` and `/api/version`: the models in Ollama's form."""

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot import __version__
from ingot.convert import open_model
from ingot.gguf import Value
from ingot.server.body_limits import Name
from ingot.server.catalog import LATEST
from ingot.server.errors import ApiError
from ingot.server.http.access_log import record_of
from ingot.server.http.json_response import LongJsonResponse
from ingot.server.model_entry import Entry
from ingot.server.model_facts import ModelFacts, context_of
from ingot.server.parameters import check_parameters
from ingot.server.sampling_body import RequestBody
from ingot.server.state import Server
from ingot.server.threads import run_in_thread

# The version of Ollama whose API this is. Clients compare it with the one that they need.
API_VERSION = "0.12.11"
_FOREVER = datetime(9999, 12, 31, tzinfo=UTC)
_FOREVER_SECONDS = 1e9
_LONGEST_SHOWN = 16  # elements of an array in the metadata, unless all are wanted


class Details(BaseModel):
    """A model file in words."""

    parent_model: str = ""
    format: str = "gguf"
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class ListedModel(BaseModel):
    """A model. Its digest identifies the file by name, size and time, not by its bytes."""

    name: str
    model: str
    modified_at: datetime
    size: int
    digest: str
    details: Details


class ModelList(BaseModel):
    """All models."""

    models: list[ListedModel]


class RunningModel(BaseModel):
    """A model that is loaded."""

    name: str
    model: str
    size: int
    digest: str
    details: Details
    expires_at: datetime
    size_vram: int
    context_length: int


class RunningList(BaseModel):
    """All models that are loaded."""

    models: list[RunningModel]


class NamedBody(RequestBody):
    """A model by its name; older clients say `name`."""

    model: Annotated[Name, Field(min_length=1)] | None = None
    name: Annotated[Name, Field(min_length=1)] | None = None

    @property
    def wanted(self) -> str:
        """The name."""
        if (found := self.model or self.name) is None:
            raise ApiError(400, "model is required", param="model")
        return found


class ShowBody(NamedBody):
    """A model; `verbose` asks for its vocabulary, too."""

    verbose: bool | None = None


class ShownModel(BaseModel):
    """All that is known of a model. Arrays of the metadata are null unless `verbose` is set."""

    modelfile: str
    parameters: str
    template: str
    details: Details
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: datetime
    warnings: list[str] | None = None  # about parameters that were ignored


class Version(BaseModel):
    """The version of Ollama's API, and of Ingot."""

    version: str = API_VERSION
    ingot: str = __version__


def router(server: Server) -> APIRouter:
    """The endpoints."""
    routes = APIRouter()

    @routes.get("/api/tags")
    async def tags() -> ModelList:
        """List the models."""
        found = [
            (entry, await server.facts.read_if_possible(entry.model.path))
            for entry in server.catalog.entries.values()
        ]
        return ModelList(models=[_listed(entry, facts) for entry, facts in found if facts])

    @routes.get("/api/ps")
    async def running() -> RunningList:
        """List the models that are loaded."""
        loaded = [entry for entry in server.catalog.entries.values() if entry.llm is not None]
        facts = [await server.facts.read_if_possible(entry.model.path) for entry in loaded]
        return RunningList(
            models=[
                _running(server, entry, each)
                for entry, each in zip(loaded, facts, strict=True)
                if each is not None
            ]
        )

    @routes.post("/api/show", response_model=ShownModel)
    async def show(body: ShowBody, http: HttpRequest) -> Response:
        """What is known of a model."""
        record = record_of(http.scope)
        check_parameters(body, record, server.options)
        entry = server.catalog.find(body.wanted)
        facts = await server.facts.read(entry.model.path)
        info = await run_in_thread(_metadata, entry, whole=bool(body.verbose))
        shown = ShownModel(
            modelfile=f"FROM {listed_name(entry.name)}\n",
            parameters="",
            template=facts.template,
            details=_details(facts),
            model_info={},
            capabilities=list(facts.capabilities),
            modified_at=facts.modified,
            warnings=record.warnings or None,
        ).model_dump(mode="json", exclude_none=True)
        return LongJsonResponse({**shown, "model_info": info})

    @routes.get("/api/version")
    async def version() -> Version:
        """The version of the API."""
        return Version()

    return routes


def listed_name(name: str) -> str:
    """A name as Ollama lists it: with a tag."""
    return name if ":" in name else f"{name}{LATEST}"


def _listed(entry: Entry, facts: ModelFacts) -> ListedModel:
    return ListedModel(
        name=listed_name(entry.name),
        model=listed_name(entry.name),
        modified_at=facts.modified,
        size=facts.size,
        digest=facts.digest,
        details=_details(facts),
    )


def _running(server: Server, entry: Entry, facts: ModelFacts) -> RunningModel:
    left = server.catalog.seconds_left(entry)
    expires = _FOREVER
    if left < _FOREVER_SECONDS:
        expires = datetime.now(UTC) + timedelta(seconds=max(left, 0))
    gpu = None if entry.llm is None else entry.llm.engine.model.gpu
    return RunningModel(
        **_listed(entry, facts).model_dump(exclude={"modified_at"}),
        expires_at=expires,
        size_vram=gpu.allocated if gpu is not None else 0,
        context_length=context_of(facts, entry),
    )


def _details(facts: ModelFacts) -> Details:
    return Details(
        family=facts.architecture,
        families=[facts.architecture],
        parameter_size=_rounded(facts.parameters),
        quantization_level=facts.quantization,
    )


def _rounded(parameters: int) -> str:
    """A number of parameters in Ollama's words: `134.52M`, `8.0B`."""
    for unit, size in (("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if parameters >= size:
            digits = 1 if unit == "B" else 2
            return f"{parameters / size:.{digits}f}{unit}"
    return str(parameters)


def _metadata(entry: Entry, *, whole: bool) -> dict[str, object]:
    """The metadata of a model's file. Long arrays are null unless the whole is wanted."""
    with open_model(entry.model.path) as loader:
        return {key: _plain(value, whole=whole) for key, value in loader.metadata.items()}


def _plain(value: Value, *, whole: bool) -> object:
    """A value for JSON; a long array is an iterator."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (bool, int, str)):
        return value
    if len(value) > _LONGEST_SHOWN and not whole:
        return None
    return _elements(value)


def _elements(values: Any) -> Iterator[object]:
    for value in values:
        plain = value.item() if isinstance(value, np.generic) else value
        yield None if isinstance(plain, float) and not math.isfinite(plain) else plain
