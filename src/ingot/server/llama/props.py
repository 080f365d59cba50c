"""`/props` and `/lora-adapters`: what a client asks first about a model."""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from ingot import __version__
from ingot.sampling import SamplingParams
from ingot.server.body_limits import Few
from ingot.server.llama.generation_settings import GenerationSettings, settings_of
from ingot.server.model_entry import Lease
from ingot.server.options import RequestOptions
from ingot.server.request_adapters import AdapterScale, scales_by_name
from ingot.server.state import Server


class DefaultSettings(BaseModel):
    """The context length, and the sampling parameters of requests that set none."""

    n_ctx: int
    params: GenerationSettings


class Modalities(BaseModel):
    """What a model can read besides text."""

    vision: bool = False
    audio: bool = False


class Props(BaseModel):
    """A model and how it is served."""

    default_generation_settings: DefaultSettings
    total_slots: int
    model_alias: str
    model_path: str
    chat_template: str
    bos_token: str
    eos_token: str
    modalities: Modalities = Modalities()
    build_info: str = f"ingot-{__version__}"
    is_sleeping: bool = False


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
    async def props(model: str | None = None) -> Props:
        """Properties of a model and its defaults."""
        with await server.catalog.lease(model) as lease:
            return _props(lease, server.request_options(lease.name))

    @routes.get("/lora-adapters")
    async def adapters(model: str | None = None) -> list[Adapter]:
        """The LoRA adapters of a model."""
        with await server.catalog.lease(model) as lease:
            return [
                Adapter(
                    id=number,
                    name=info.name,
                    path=info.path,
                    scale=info.scale,
                    task_name=info.task,
                    prompt_prefix=info.prompt_prefix,
                )
                for number, info in enumerate(lease.llm.engine.adapters.infos)
            ]

    @routes.post("/lora-adapters")
    async def set_adapters(body: Few[AdapterScale], model: str | None = None) -> Success:
        """Set the scales of requests that do not set their own; adapters left out are not used."""
        with await server.catalog.lease(model) as lease:
            lease.llm.engine.adapters.set_scales(scales_by_name(lease.llm, body, "id"))
        return Success()

    return routes


def _props(lease: Lease, options: RequestOptions) -> Props:
    llm = lease.llm
    template = llm.chat_template
    defaults = SamplingParams.from_names(options.sampling, max_tokens=options.max_tokens)
    return Props(
        default_generation_settings=DefaultSettings(
            n_ctx=llm.context, params=settings_of(defaults)
        ),
        total_slots=llm.engine.max_running,
        model_alias=lease.name,
        model_path=str(llm.path),
        chat_template=template.source,
        bos_token=template.bos_token,
        eos_token=template.eos_token,
    )
