"""`/rerank`: documents in the order of their relevance to a query, by a reranker."""

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request as HttpRequest

from ingot.api import LLM
from ingot.server.body_limits import PromptList
from ingot.server.errors import ApiError
from ingot.server.http.access_log import record_of
from ingot.server.openai.embeddings import check_finite
from ingot.server.openai.shared import InputUsage
from ingot.server.parameters import check_parameters
from ingot.server.prompt_tokens import PromptTokens, kept_tokens
from ingot.server.sampling_body import RequestBody
from ingot.server.state import Server
from ingot.server.threads import run_in_thread


class RerankBody(RequestBody):
    """A query and documents. If they are called `texts`, the response is a plain list."""

    model: str | None = None
    query: str
    documents: PromptList[str] | None = None
    texts: PromptList[str] | None = None
    top_n: Annotated[int, Field(ge=1)] | None = None
    return_text: bool = False
    return_documents: bool = False
    truncate_prompt_tokens: PromptTokens | None = None  # of each pair; vLLM's
    user: str | None = None


class RankedDocument(BaseModel):
    """A document."""

    text: str


class Ranked(BaseModel):
    """A document's index and score."""

    index: int
    relevance_score: float
    document: RankedDocument | None = None  # if requested


class RankedText(BaseModel):
    """An entry of the plain list, with the text if requested."""

    index: int
    score: float
    text: str | None = None


class RerankResponse(BaseModel):
    """The most relevant documents, best first."""

    model: str
    object: str = "list"
    usage: InputUsage
    results: list[Ranked]
    warnings: list[str] | None = None  # about parameters that were ignored


def router(server: Server) -> APIRouter:
    """The endpoint, under all of its names."""
    routes = APIRouter()
    hidden: dict[str, Any] = {"include_in_schema": False, "response_model_exclude_none": True}

    @routes.post("/rerank", response_model_exclude_none=True)
    @routes.post("/reranking", **hidden)
    @routes.post("/v1/rerank", **hidden)
    @routes.post("/v1/reranking", **hidden)
    @routes.post("/v2/rerank", **hidden)
    async def rerank(body: RerankBody, http: HttpRequest) -> RerankResponse | list[RankedText]:
        """Order documents by their relevance to a query."""
        record = record_of(http.scope)
        check_parameters(body, record, server.options)
        documents = body.documents if body.documents is not None else body.texts
        if documents is None:
            raise ApiError(400, "documents is required", param="documents")
        with await server.catalog.lease_without_adapter(body.model) as lease:
            record.model = lease.name
            most = kept_tokens(body.truncate_prompt_tokens, lease.llm.context)
            found = await run_in_thread(lease.llm.rerank, body.query, documents, truncate=most)
            tokens = await run_in_thread(pair_tokens, lease.llm, body.query, documents, most)
        scores = [float(score) for score in check_finite(found)]
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
        return RerankResponse(
            model=lease.name,
            usage=InputUsage(prompt_tokens=tokens, total_tokens=tokens),
            results=[
                Ranked(
                    index=index,
                    relevance_score=scores[index],
                    document=RankedDocument(text=documents[index])
                    if body.return_documents
                    else None,
                )
                for index in order
            ],
            warnings=record.warnings or None,
        )

    return routes


def pair_tokens(llm: LLM, query: str, documents: list[str], most: int | None) -> int:
    """The tokens of all pairs of a query and a document; a pair has at most `most`."""
    query_tokens = len(llm.tokenize(query))
    pairs = [query_tokens + len(llm.tokenize(document)) for document in documents]
    return sum(pairs if most is None else [min(tokens, most) for tokens in pairs])
