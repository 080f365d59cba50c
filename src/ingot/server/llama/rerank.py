"""`/rerank`: documents ordered by how well they answer a query, by a model made for it."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request as HttpRequest

from ingot.api import LLM
from ingot.server.body_limits import Several
from ingot.server.call import call_of
from ingot.server.errors import ApiError
from ingot.server.sampling_body import Body
from ingot.server.state import Server


class RerankBody(Body):
    """A query and documents; called `texts`, they are answered as a plain list."""

    model: str | None = None
    query: str
    documents: Several[str] | None = None
    texts: Several[str] | None = None
    top_n: Annotated[int, Field(ge=1)] | None = None
    return_text: bool = False


class Ranked(BaseModel):
    """A document by its number, and its score."""

    index: int
    relevance_score: float


class RankedText(BaseModel):
    """The same in the plain list, with the text if it is wanted."""

    index: int
    score: float
    text: str | None = None


class RerankUsage(BaseModel):
    """Tokens read."""

    prompt_tokens: int
    total_tokens: int


class RerankAnswer(BaseModel):
    """The best documents, best first."""

    model: str
    object: str = "list"
    usage: RerankUsage
    results: list[Ranked]


def router(server: Server) -> APIRouter:
    """The endpoint, under all of its names."""
    made = APIRouter()
    hidden: dict[str, Any] = {"include_in_schema": False, "response_model_exclude_none": True}

    @made.post("/rerank", response_model_exclude_none=True)
    @made.post("/reranking", **hidden)
    @made.post("/v1/rerank", **hidden)
    @made.post("/v1/reranking", **hidden)
    async def rerank(body: RerankBody, http: HttpRequest) -> RerankAnswer | list[RankedText]:
        """Order documents by a query."""
        documents = body.documents if body.documents is not None else body.texts
        if documents is None:
            raise ApiError(400, "documents is missing", param="documents")
        with await server.catalog.lease(body.model) as lease:
            call_of(http.scope).model = lease.name
            found = await asyncio.to_thread(lease.llm.rerank, body.query, documents)
            tokens = await asyncio.to_thread(_tokens, lease.llm, body.query, documents)
        scores = [float(score) for score in found]
        order = sorted(range(len(scores)), key=lambda index: -scores[index])[: body.top_n]
        if body.documents is None:
            return [
                RankedText(
                    index=index,
                    score=scores[index],
                    text=documents[index] if body.return_text else None,
                )
                for index in order
            ]
        return RerankAnswer(
            model=lease.name,
            usage=RerankUsage(prompt_tokens=tokens, total_tokens=tokens),
            results=[Ranked(index=index, relevance_score=scores[index]) for index in order],
        )

    return made


def _tokens(llm: LLM, query: str, documents: list[str]) -> int:
    asked = len(llm.tokenize(query))
    return sum(asked + len(llm.tokenize(document)) for document in documents)
