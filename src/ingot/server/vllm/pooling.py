"""`/pooling`: embedding vectors in vLLM's form."""

from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot.server.http.access_log import record_of
from ingot.server.http.json_response import LongJsonResponse
from ingot.server.openai.embeddings import embed, shortened
from ingot.server.openai.shared import InputUsage, Prompts, new_id, now, prompt_list
from ingot.server.parameters import check_parameters
from ingot.server.prompt_tokens import PromptTokens
from ingot.server.sampling_body import RequestBody
from ingot.server.state import Server
from ingot.server.threads import run_in_thread


class PoolingBody(RequestBody):
    """Texts or token ids to pool."""

    model: str | None = None
    input: Prompts
    encoding_format: Literal["float"] = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None
    truncate_prompt_tokens: PromptTokens | None = None  # the first are kept
    user: str | None = None


class Pooled(BaseModel):
    """The vector of one input, of length 1."""

    index: int
    object: Literal["pooling"] = "pooling"
    data: list[float]


class PoolingResponse(BaseModel):
    """The vectors of all inputs."""

    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[Pooled]
    usage: InputUsage
    warnings: list[str] | None = None  # about parameters that were ignored


def router(server: Server) -> APIRouter:
    """The endpoint."""
    routes = APIRouter()

    @routes.post("/pooling", response_model=PoolingResponse)
    async def pooling(body: PoolingBody, http: HttpRequest) -> Response:
        """Compute the pooled vector of each input."""
        record = record_of(http.scope)
        check_parameters(body, record, server.options)
        with await server.catalog.lease_without_adapter(body.model) as lease:
            record.model = lease.name
            vectors, tokens = await run_in_thread(
                embed, lease.llm, prompt_list(body.input), body.truncate_prompt_tokens
            )
        if body.dimensions is not None:
            vectors = shortened(vectors, body.dimensions)
        response = PoolingResponse(
            id=new_id("pool-"),
            created=now(),
            model=lease.name,
            data=[],
            usage=InputUsage(prompt_tokens=tokens, total_tokens=tokens),
            warnings=record.warnings or None,
        ).model_dump(exclude_none=True)
        pooled = (
            Pooled(index=index, data=vector.tolist()).model_dump()
            for index, vector in enumerate(vectors)
        )
        return LongJsonResponse({**response, "data": pooled})

    return routes
