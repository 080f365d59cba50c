"""`/v1/embeddings`: vectors of texts."""

import asyncio
import base64
from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot.api import LLM
from ingot.arrays import Floats
from ingot.server.call import call_of
from ingot.server.errors import ApiError
from ingot.server.json_answer import LongAnswer, list_pieces
from ingot.server.openai.answers import ERRORS
from ingot.server.openai.prompts import Prompts, listed
from ingot.server.sampling_body import Body
from ingot.server.sse import dumps
from ingot.server.state import Server


class EmbeddingBody(Body):
    """What is to be embedded: texts, or their tokens."""

    model: str | None = None
    input: Prompts
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: str | None = None


class Embedding(BaseModel):
    """The vector of one text."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(BaseModel):
    """Tokens read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(BaseModel):
    """The vectors of all texts."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


def router(server: Server) -> APIRouter:
    """The endpoint."""
    made = APIRouter(responses=ERRORS)

    @made.post("/v1/embeddings", response_model=EmbeddingList)
    async def embeddings(body: EmbeddingBody, http: HttpRequest) -> Response:
        """Vectors that are close where texts are alike."""
        with await server.catalog.lease(body.model) as lease:
            call_of(http.scope).model = lease.name
            prompts = listed(body.input)
            vectors, tokens = await asyncio.to_thread(embed, lease.llm, prompts)
        if body.dimensions is not None:
            vectors = shortened(vectors, body.dimensions)
        usage = EmbeddingUsage(prompt_tokens=tokens, total_tokens=tokens)
        whole = EmbeddingList(data=[], model=lease.name, usage=usage)
        return LongAnswer(_pieces(whole, vectors, body.encoding_format))

    return made


def _pieces(whole: EmbeddingList, vectors: Floats, encoding: str) -> Iterator[str]:
    """The answer vector by vector: there may be thousands, of thousands of numbers."""
    before, after = dumps(whole.model_dump()).split("[]", 1)
    yield before
    yield from list_pieces(
        (
            dumps(Embedding(index=index, embedding=_written(vector, encoding)).model_dump())
            for index, vector in enumerate(vectors)
        ),
        together=1,
    )
    yield after


def embed(llm: LLM, prompts: list[str | list[int]]) -> tuple[Floats, int]:
    """The vectors of prompts, and how many tokens they have."""
    ids = [llm.engine.encode(prompt) for prompt in prompts]
    return llm.embed(ids), sum(map(len, ids))


def shortened(vectors: Floats, dimensions: int) -> Floats:
    """The first numbers of vectors, which have length 1 again."""
    if dimensions > vectors.shape[1]:
        raise ApiError(
            400,
            f"dimensions is {dimensions}; the model's vectors have {vectors.shape[1]}",
            param="dimensions",
        )
    cut = vectors[:, :dimensions]
    return np.asarray(cut / np.maximum(np.linalg.norm(cut, axis=1, keepdims=True), 1e-12))


def _written(vector: Floats, encoding: str) -> list[float] | str:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return list(vector.tolist())
