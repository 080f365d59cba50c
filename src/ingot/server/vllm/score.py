"""`/score`: how similar texts are, or how well they answer a query."""

from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request as HttpRequest

from ingot import models
from ingot.api import LLM
from ingot.arrays import Floats
from ingot.server.body_limits import PromptList
from ingot.server.errors import ApiError
from ingot.server.http.access_log import record_of
from ingot.server.llama.rerank import pair_tokens
from ingot.server.openai.embeddings import check_finite, embed
from ingot.server.openai.shared import InputUsage, new_id, now
from ingot.server.parameters import check_parameters
from ingot.server.prompt_tokens import PromptTokens, kept_tokens
from ingot.server.sampling_body import RequestBody
from ingot.server.state import Server
from ingot.server.threads import run_in_thread


class ScoreBody(RequestBody):
    """Texts to compare: one with each of the others, or two lists pair by pair."""

    model: str | None = None
    text_1: Annotated[str, Field(min_length=1)] | PromptList[str]
    text_2: Annotated[str, Field(min_length=1)] | PromptList[str]
    truncate_prompt_tokens: PromptTokens | None = None  # of each pair, or of each text
    user: str | None = None


class Score(BaseModel):
    """The score of one pair."""

    index: int
    object: Literal["score"] = "score"
    score: float


class ScoreList(BaseModel):
    """The scores of all pairs."""

    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[Score]
    usage: InputUsage
    warnings: list[str] | None = None  # about parameters that were ignored


def router(server: Server) -> APIRouter:
    """The endpoint, under both names."""
    routes = APIRouter()

    @routes.post("/score", response_model_exclude_none=True)
    @routes.post("/v1/score", include_in_schema=False, response_model_exclude_none=True)
    async def score(body: ScoreBody, http: HttpRequest) -> ScoreList:
        """Score pairs of texts: by a reranker, or by the cosine of their embeddings."""
        record = record_of(http.scope)
        check_parameters(body, record, server.options)
        first, second = _pairs(body)
        with await server.catalog.lease_without_adapter(body.model) as lease:
            record.model = lease.name
            scores, tokens = await run_in_thread(
                _scores, lease.llm, first, second, body.truncate_prompt_tokens
            )
        return ScoreList(
            id=new_id("score-"),
            created=now(),
            model=lease.name,
            data=[Score(index=index, score=float(each)) for index, each in enumerate(scores)],
            usage=InputUsage(prompt_tokens=tokens, total_tokens=tokens),
            warnings=record.warnings or None,
        )

    return routes


def _pairs(body: ScoreBody) -> tuple[list[str], list[str]]:
    """Two lists of the same length."""
    first = [body.text_1] if isinstance(body.text_1, str) else body.text_1
    second = [body.text_2] if isinstance(body.text_2, str) else body.text_2
    if len(first) == 1:
        first = first * len(second)
    if len(first) != len(second):
        raise ApiError(
            400,
            f"text_1 has {len(first)} texts and text_2 {len(second)}; send one, or equally many",
            param="text_1",
        )
    return first, second


def _scores(
    llm: LLM, first: list[str], second: list[str], truncate: int | None
) -> tuple[Floats, int]:
    """The score of each pair, and the number of all tokens."""
    if not models.is_reranker(llm.file):
        vectors, tokens = embed(llm, [*first, *second], truncate)
        return np.sum(vectors[: len(first)] * vectors[len(first) :], axis=1), tokens
    most = kept_tokens(truncate, llm.context)
    pairs = list(zip(first, second, strict=True))
    if len(set(first)) == 1:
        ranked = llm.rerank(first[0], second, truncate=most)
    else:
        ranked = np.concatenate([llm.rerank(query, [text], truncate=most) for query, text in pairs])
    tokens = sum(pair_tokens(llm, query, [text], most) for query, text in pairs)
    sigmoid = np.tanh(check_finite(ranked) / 2) / 2 + 0.5  # cannot overflow
    return np.asarray(sigmoid, np.float32), tokens
