"""`/props` and `/lora-adapters`: what a client asks first about a model."""

from pathlib import Path
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request as HttpRequest

from ingot import __version__
from ingot.adapters import adapter_labels
from ingot.api import LLM
from ingot.sampling import SamplingParams
from ingot.server.body_limits import Few
from ingot.server.http.access_log import record_of
from ingot.server.llama.generation_settings import GenerationSettings, settings_of
from ingot.server.model_entry import Entry
from ingot.server.model_facts import context_of, tokenizer_of
from ingot.server.options import ServedModel
from ingot.server.parameters import check_parameters
from ingot.server.request_adapters import AdapterScale, scales_by_name
from ingot.server.state import Server
from ingot.server.threads import run_in_thread

_BUILD = f"ingot-{__version__}"


class DefaultSettings(BaseModel):
    """The context length, and the sampling parameters of requests that set none."""

    n_ctx: int
    params: GenerationSettings


class Modalities(BaseModel):
    """What a model can read besides text."""

    vision: bool = False
    audio: bool = False


class Props(BaseModel):
    """A model and how it is served. One that is closed sleeps: the next request opens it."""

    default_generation_settings: DefaultSettings
    total_slots: int  # 0: not known before the model is open
    model_alias: str
    model_path: str
    chat_template: str
    bos_token: str
    eos_token: str
    modalities: Modalities = Modalities()
    build_info: str = _BUILD
    is_sleeping: bool


class NoSettings(BaseModel):
    """What a router says instead of the settings of a model."""

    n_ctx: int = 0
    params: dict[str, int] = {}


class RouterProps(BaseModel):
    """A server of several models, as llama-server's router describes itself."""

    role: Literal["router"] = "router"
    max_instances: int  # models that are open at once; 0: as many as there is memory for
    models_autoload: Literal[True] = True
    default_generation_settings: NoSettings = NoSettings()
    model_alias: str = "ingot"
    model_path: str = "none"
    build_info: str = _BUILD


class Adapter(BaseModel):
    """A LoRA adapter; `scale` is that of requests that do not set it."""

    id: int
    name: str
    path: str
    scale: float
    task_name: str
    prompt_prefix: str


class Success(BaseModel):
    """The request succeeded."""

    success: Literal[True] = True


def router(server: Server) -> APIRouter:
    """The endpoints."""
    routes = APIRouter()

    @routes.get("/props")
    async def props(model: str | None = None) -> Props | RouterProps:
        """Properties of a model and its defaults; of the router, if no model is named."""
        if model is None and server.options.has_several_models:
            return RouterProps(max_instances=server.options.models_max or 0)
        return await _props(server, server.catalog.find(model))

    @routes.get("/lora-adapters")
    async def adapters(model: str | None = None) -> list[Adapter]:
        """The LoRA adapters of a model."""
        entry = server.catalog.find(model)
        if entry.llm is None:
            return await run_in_thread(_given_adapters, entry.model)
        return _open_adapters(entry.llm)

    @routes.post("/lora-adapters")
    async def set_adapters(
        body: Few[AdapterScale], http: HttpRequest, model: str | None = None
    ) -> Success:
        """Set the scales of requests that do not set their own; adapters left out are not used."""
        for each in body:
            check_parameters(each, record_of(http.scope), server.options)
        with await server.catalog.lease(model) as lease:
            lease.llm.engine.adapters.set_scales(scales_by_name(lease.llm, body, "id"))
        return Success()

    return routes


def _open_adapters(llm: LLM) -> list[Adapter]:
    return [
        Adapter(
            id=number,
            name=info.name,
            path=info.path,
            scale=info.scale,
            task_name=info.task,
            prompt_prefix=info.prompt_prefix,
        )
        for number, info in enumerate(llm.engine.adapters.infos)
    ]


def _given_adapters(model: ServedModel) -> list[Adapter]:
    """The adapters that a closed model will have when it is opened."""
    scales = model.engine.adapter_scales or {}
    found = []
    for number, (name, path) in enumerate((model.engine.adapters or {}).items()):
        labels = adapter_labels(path)
        found.append(
            Adapter(
                id=number,
                name=name,
                path=str(Path(path).expanduser()),
                scale=scales.get(name, 0.0),
                task_name=labels.task_name,
                prompt_prefix=labels.prompt_prefix,
            )
        )
    return found


async def _props(server: Server, entry: Entry) -> Props:
    options = server.request_options(entry.name)
    defaults = SamplingParams.from_names(options.sampling, max_tokens=options.max_tokens)
    facts = await server.facts.read(entry.model.path)
    tokenizer = await tokenizer_of(entry, server.tokenizers)
    return Props(
        default_generation_settings=DefaultSettings(
            n_ctx=context_of(facts, entry), params=settings_of(defaults)
        ),
        total_slots=entry.slots,
        model_alias=entry.name,
        model_path=str(entry.model.path),
        chat_template=tokenizer.template,
        bos_token=tokenizer.bos_token,
        eos_token=tokenizer.eos_token,
        is_sleeping=entry.llm is None,
    )
