"""`/props`: what a client asks first: the model, its template, the settings by default."""

from fastapi import APIRouter
from pydantic import BaseModel

from ingot import __version__
from ingot.api import LLM
from ingot.sampling import SamplingParams
from ingot.server.catalog import Lease
from ingot.server.llama.settings import GenerationSettings, settings_of
from ingot.server.options import ServerOptions
from ingot.server.state import Server


class DefaultSettings(BaseModel):
    """How tokens are chosen where a request says nothing, and how long a text may be."""

    n_ctx: int
    params: GenerationSettings


class Modalities(BaseModel):
    """What a model reads beside text."""

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


def router(server: Server) -> APIRouter:
    """The endpoint."""
    made = APIRouter()

    @made.get("/props")
    async def props(model: str | None = None) -> Props:
        """What there is to know about a model."""
        with await server.catalog.lease(model) as lease:
            return _props(lease, lease.llm, server.options)

    return made


def _props(lease: Lease, llm: LLM, options: ServerOptions) -> Props:
    template = llm.chat_template
    params = settings_of(SamplingParams(max_tokens=options.max_tokens))
    return Props(
        default_generation_settings=DefaultSettings(n_ctx=llm.context, params=params),
        total_slots=llm.engine.options.max_running,
        model_alias=lease.name,
        model_path=str(llm.path),
        chat_template=template.source,
        bos_token=template.bos_token,
        eos_token=template.eos_token,
    )
