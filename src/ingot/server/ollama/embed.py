"""`/api/embed` and the older `/api/embeddings`: embedding vectors in Ollama's form."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot.api import LLM
from ingot.arrays import Floats
from ingot.server.body_limits import PromptList
from ingot.server.http.access_log import record_of
from ingot.server.http.json_response import LongJsonResponse
from ingot.server.ollama.options_body import ModelBody, check_body
from ingot.server.ollama.replies import elapsed, keep_alive
from ingot.server.openai.embeddings import check_finite, shortened
from ingot.server.prompt_tokens import first_tokens
from ingot.server.state import Server
from ingot.server.threads import run_in_thread


class EmbedBody(ModelBody):
    """Texts to embed. Those longer than the context are cut, unless `truncate` is false."""

    input: str | PromptList[str]
    truncate: bool | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None


class EmbedResponse(BaseModel):
    """The embeddings, of length 1."""

    model: str
    embeddings: list[list[float]]
    total_duration: int  # nanoseconds
    load_duration: int
    prompt_eval_count: int
    warnings: list[str] | None = None  # about parameters that were ignored


class EmbeddingsBody(ModelBody):
    """A text to embed."""

    prompt: str


class EmbeddingsResponse(BaseModel):
    """The embedding, not normalized."""

    embedding: list[float]
    warnings: list[str] | None = None


def router(server: Server) -> APIRouter:
    """The endpoints."""
    routes = APIRouter()

    @routes.post("/api/embed", response_model=EmbedResponse)
    async def embed(body: EmbedBody, http: HttpRequest) -> Response:
        """Compute embedding vectors."""
        record = record_of(http.scope)
        check_body(body, record, server.options)
        keep_alive(server, body)
        texts = [body.input] if isinstance(body.input, str) else body.input

        def vectors_of(llm: LLM) -> tuple[Floats, int]:
            most = None if body.truncate is False else llm.context
            ids = [first_tokens(llm, text, most) for text in texts]
            return check_finite(llm.embed(ids)), sum(map(len, ids))

        with await server.catalog.lease_without_adapter(body.model) as lease:
            record.model = lease.name
            loaded = elapsed(record)
            vectors, count = await run_in_thread(vectors_of, lease.llm)
        if body.dimensions is not None:
            vectors = shortened(vectors, body.dimensions)
        response = EmbedResponse(
            model=body.model,
            embeddings=[],
            total_duration=elapsed(record),
            load_duration=loaded,
            prompt_eval_count=count,
            warnings=record.warnings or None,
        ).model_dump(exclude_none=True)
        return LongJsonResponse({**response, "embeddings": (each.tolist() for each in vectors)})

    @routes.post("/api/embeddings", response_model_exclude_none=True)
    async def embeddings(body: EmbeddingsBody, http: HttpRequest) -> EmbeddingsResponse:
        """Compute one embedding vector (older form)."""
        record = record_of(http.scope)
        check_body(body, record, server.options)
        keep_alive(server, body)

        def vectors_of(llm: LLM) -> Floats:
            return check_finite(llm.embed([body.prompt], normalize=False))

        with await server.catalog.lease_without_adapter(body.model) as lease:
            record.model = lease.name
            (vector,) = await run_in_thread(vectors_of, lease.llm)
        return EmbeddingsResponse(embedding=vector.tolist(), warnings=record.warnings or None)

    return routes
