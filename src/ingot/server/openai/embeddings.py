"""`/v1/embeddings`: embedding vectors of texts."""

import base64
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot.api import LLM
from ingot.arrays import Floats
from ingot.server.errors import ApiError
from ingot.server.http.access_log import record_of
from ingot.server.http.json_response import LongJsonResponse
from ingot.server.openai.shared import ERRORS, InputUsage, Prompts, prompt_list
from ingot.server.parameters import check_parameters
from ingot.server.prompt_tokens import PromptTokens, first_tokens, kept_tokens
from ingot.server.sampling_body import RequestBody
from ingot.server.state import Server
from ingot.server.threads import run_in_thread

Encoding = Literal["float", "base64"]


class EmbeddingBody(RequestBody):
    """Texts or token ids to embed."""

    model: str | None = None
    input: Prompts
    encoding_format: Encoding = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None
    truncate_prompt_tokens: PromptTokens | None = None  # the first are kept
    user: str | None = None


class Embedding(BaseModel):
    """The embedding of one input."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingList(BaseModel):
    """The embeddings of all inputs."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: InputUsage
    warnings: list[str] | None = None  # about parameters that were ignored


def router(server: Server) -> APIRouter:
    """The endpoint."""
    routes = APIRouter(responses=ERRORS)

    @routes.post("/v1/embeddings", response_model=EmbeddingList)
    async def embeddings(body: EmbeddingBody, http: HttpRequest) -> Response:
        """Compute embedding vectors."""
        record = record_of(http.scope)
        check_parameters(body, record, server.options)
        with await server.catalog.lease_without_adapter(body.model) as lease:
            record.model = lease.name
            vectors, tokens = await run_in_thread(
                embed, lease.llm, prompt_list(body.input), body.truncate_prompt_tokens
            )
        if body.dimensions is not None:
            vectors = shortened(vectors, body.dimensions)
        usage = InputUsage(prompt_tokens=tokens, total_tokens=tokens)
        response = EmbeddingList(
            data=[], model=lease.name, usage=usage, warnings=record.warnings or None
        ).model_dump(exclude_none=True)
        return LongJsonResponse({**response, "data": _entries(vectors, body.encoding_format)})

    return routes


def _entries(vectors: Floats, encoding: Encoding) -> Iterator[dict[str, object]]:
    for index, vector in enumerate(vectors):
        yield Embedding(index=index, embedding=_encoded(vector, encoding)).model_dump()


def embed(
    llm: LLM, prompts: Sequence[str | list[int]], truncate: int | None = None
) -> tuple[Floats, int]:
    """The embeddings of prompts, cut to `truncate` tokens, and the number of all tokens."""
    most = kept_tokens(truncate, llm.context)
    ids = [llm.engine.encode(first_tokens(llm, prompt, most)) for prompt in prompts]
    return check_finite(llm.embed(ids)), sum(map(len, ids))


def check_finite(results: Floats) -> Floats:
    """The results of a model, one per row, unless one is NaN or infinite."""
    bad = np.flatnonzero(~np.isfinite(results.reshape(len(results), -1)).all(axis=1))
    if len(bad):
        raise ApiError(
            500,
            f"the model's result for input {bad[0]} is NaN or infinite; its file may be damaged",
            code="result_not_finite",
        )
    return results


def shortened(vectors: Floats, dimensions: int) -> Floats:
    """The first dimensions of vectors, normalized again."""
    if dimensions > vectors.shape[1]:
        raise ApiError(
            400,
            f"dimensions is {dimensions}; the model's vectors have {vectors.shape[1]}",
            param="dimensions",
        )
    cut = vectors[:, :dimensions]
    return np.asarray(cut / np.maximum(np.linalg.norm(cut, axis=1, keepdims=True), 1e-12))


def _encoded(vector: Floats, encoding: Encoding) -> list[float] | str:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return list(vector.tolist())
