"""`/embedding`: vectors of texts, in llama-server's form."""

import asyncio
from typing import Annotated

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot.api import LLM, Pooling
from ingot.arrays import Floats
from ingot.server.call import call_of
from ingot.server.errors import ApiError
from ingot.server.json_answer import LongAnswer, list_pieces
from ingot.server.llama.prompts import Prompts, listed, tokens_of
from ingot.server.sampling_body import Body
from ingot.server.sse import dumps
from ingot.server.state import Server

_LARGEST = 32760  # what the largest number becomes where vectors are for 16-bit integers


class EmbeddingBody(Body):
    """What is to be embedded, under either name."""

    model: str | None = None
    content: Prompts | None = None
    input: Prompts | None = None
    pooling: Pooling | None = None  # as the file says, or the mean
    embd_normalize: Annotated[int, Field(ge=-1, le=1000)] = 2


class Embedding(BaseModel):
    """A text's vectors: one, as they are pooled."""

    index: int
    embedding: list[list[float]]


def router(server: Server) -> APIRouter:
    """The endpoint, under both of its names."""
    made = APIRouter()

    @made.post("/embedding", response_model=list[Embedding])
    @made.post("/embeddings", include_in_schema=False, response_model=list[Embedding])
    async def embedding(body: EmbeddingBody, http: HttpRequest) -> Response:
        """Vectors that are close where texts are alike."""
        given = body.content if body.content is not None else body.input
        if given is None:
            raise ApiError(400, "content, or input, is missing", param="content")
        prompts = listed(given)

        def embed(llm: LLM) -> Floats:
            ids = [llm.engine.model.check_ids(tokens_of(llm, prompt)) for prompt in prompts]
            return llm.embed(ids, pooling=body.pooling, normalize=False)

        with await server.catalog.lease(body.model) as lease:
            call_of(http.scope).model = lease.name
            vectors = await asyncio.to_thread(embed, lease.llm)
        told = (
            dumps({"index": index, "embedding": [scaled(vector, body.embd_normalize).tolist()]})
            for index, vector in enumerate(vectors)
        )
        return LongAnswer(list_pieces(told, together=1))

    return made


def scaled(vector: Floats, norm: int) -> Floats:
    """A vector of length 1 by some norm: 2 is the usual one, 0 the largest number, -1 none."""
    size = np.abs(vector.astype(np.float64))
    match norm:
        case -1:
            return vector
        case 0:
            length = size.max() / _LARGEST
        case _:
            # Divided by the largest first: powers of small numbers vanish.
            length = size.max() * ((size / max(size.max(), 1e-30)) ** norm).sum() ** (1 / norm)
    return np.asarray(vector / max(length, 1e-30), np.float32)
