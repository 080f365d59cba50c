"""`/embedding`: embedding vectors in llama-server's form."""

from typing import Annotated

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot.api import LLM
from ingot.arrays import Floats
from ingot.models import Pooling
from ingot.server.errors import ApiError
from ingot.server.http.access_log import record_of
from ingot.server.http.json_response import LongJsonResponse
from ingot.server.llama.completion_body import Prompts, prompt_list, tokens_of
from ingot.server.openai.embeddings import check_finite
from ingot.server.parameters import check_parameters
from ingot.server.sampling_body import RequestBody
from ingot.server.state import Server
from ingot.server.threads import run_in_thread

_LARGEST = 32760  # of the largest element, if vectors are scaled for 16-bit integers


class EmbeddingBody(RequestBody):
    """Texts or tokens to embed, as `content` or `input`."""

    model: str | None = None
    content: Prompts | None = None
    input: Prompts | None = None
    pooling: Pooling | None = None  # by default the file's pooling type, or the mean
    embd_normalize: Annotated[int, Field(ge=-1, le=1000)] = 2


class Embedding(BaseModel):
    """The vectors of one input; pooling leaves one."""

    index: int
    embedding: list[list[float]]


def router(server: Server) -> APIRouter:
    """The endpoint, under both names."""
    routes = APIRouter()

    @routes.post("/embedding", response_model=list[Embedding])
    @routes.post("/embeddings", include_in_schema=False, response_model=list[Embedding])
    async def embedding(body: EmbeddingBody, http: HttpRequest) -> Response:
        """Compute embedding vectors."""
        record = record_of(http.scope)
        check_parameters(body, record, server.options)
        given = body.content if body.content is not None else body.input
        if given is None:
            raise ApiError(400, "content or input is required", param="content")
        prompts = prompt_list(given)

        def embed(llm: LLM) -> Floats:
            ids = [llm.engine.model.check_ids(tokens_of(llm, prompt)) for prompt in prompts]
            return check_finite(llm.embed(ids, pooling=body.pooling, normalize=False))

        with await server.catalog.lease_without_adapter(body.model) as lease:
            record.model = lease.name
            vectors = await run_in_thread(embed, lease.llm)
        return LongJsonResponse(
            {"index": index, "embedding": [scaled(vector, body.embd_normalize).tolist()]}
            for index, vector in enumerate(vectors)
        )

    return routes


def scaled(vector: Floats, norm: int) -> Floats:
    """A vector scaled to length 1 by a p-norm; 0 scales the largest element, -1 leaves it."""
    size = np.abs(vector.astype(np.float64))
    match norm:
        case -1:
            return vector
        case 0:
            length = size.max() / _LARGEST
        case _:
            # Divide by the largest first, because powers of small numbers underflow.
            length = size.max() * ((size / max(size.max(), 1e-30)) ** norm).sum() ** (1 / norm)
    return np.asarray(vector / max(length, 1e-30), np.float32)
