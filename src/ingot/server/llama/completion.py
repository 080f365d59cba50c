"""`/completion` and `/infill`: prompts continued, and gaps filled for editors."""

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot.api import LLM
from ingot.server.body_limits import Many
from ingot.server.fill_middle import OtherFile, middle_prompt
from ingot.server.generation import PromptSet, while_connected
from ingot.server.http.access_log import record_of
from ingot.server.http.event_stream import STREAMED, EventStream
from ingot.server.http.json_response import JsonResponse, LongJsonResponse
from ingot.server.llama.completion_body import (
    LlamaBody,
    Prompts,
    prompt_list,
    sampling_params,
    tokens_of,
)
from ingot.server.llama.completion_response import CompletionResponder, CompletionResponse
from ingot.server.parameters import check_parameters
from ingot.server.sampling_body import Body
from ingot.server.state import Server

# One completion, several, or only the fields of `response_fields`.
CompletionResponses = (
    CompletionResponse | list[CompletionResponse] | dict[str, Any] | list[dict[str, Any]]
)


class CompletionBody(LlamaBody):
    """Prompts, and how to continue them."""

    prompt: Prompts


class ExtraFile(Body):
    """Another file of the project."""

    filename: str = "tmp"
    text: str


class InfillBody(LlamaBody):
    """The text before and after a gap, and how to fill it."""

    input_prefix: str
    input_suffix: str
    input_extra: Many[ExtraFile] | None = None
    prompt: str = ""  # the beginning of the middle


def router(server: Server) -> APIRouter:
    """The endpoints."""
    routes = APIRouter()

    @routes.post("/completion", response_model=CompletionResponses, responses=STREAMED)
    @routes.post("/completions", include_in_schema=False, response_model=CompletionResponses)
    async def completion(body: CompletionBody, http: HttpRequest) -> Response:
        """Continue prompts."""
        prompts = prompt_list(body.prompt)

        def tokens(llm: LLM) -> list[list[int]]:
            return [tokens_of(llm, prompt) for prompt in prompts]

        return await _complete(server, body, http, tokens)

    @routes.post("/infill", response_model=CompletionResponses, responses=STREAMED)
    async def infill(body: InfillBody, http: HttpRequest) -> Response:
        """Fill the gap between a prefix and a suffix."""
        others = [OtherFile(extra.filename, extra.text) for extra in body.input_extra or ()]

        def tokens(llm: LLM) -> list[list[int]]:
            prompt = middle_prompt(
                llm.tokenizer,
                body.input_prefix,
                body.input_suffix,
                others=others,
                begun=body.prompt,
            )
            return [prompt]

        return await _complete(server, body, http, tokens)

    return routes


async def _complete(
    server: Server,
    body: LlamaBody,
    http: HttpRequest,
    tokens: Callable[[LLM], Sequence[Sequence[int]]],
) -> Response:
    """Continue the prompts that `tokens` makes; several completions are returned as a list."""

    check_parameters(body, record_of(http.scope), server.options)

    def prepare(llm: LLM) -> PromptSet:
        params = sampling_params(body, llm, server.request_options(body.model))
        prompts = [llm.engine.model.check_ids(prompt) for prompt in tokens(llm)]
        return PromptSet(
            prompts,
            params,
            body.n_cmpl or 1,
            reuse=body.cache_prompt is not False,
            keep=body.n_keep or 0,
            lora=body.lora,
            priority=body.priority or 0,
            speculation=body.speculation or "auto",
        )

    generation = await server.generations.begin(
        server.catalog,
        body.model,
        record_of(http.scope),
        prepare,
        http.receive,
        slot=body.id_slot,
    )
    responder = CompletionResponder(generation, body)
    if body.stream:
        return EventStream(generation, responder.events())
    async with generation:
        responses = await while_connected(http.receive, responder.whole())
    response = responses[0] if len(responses) == 1 else iter(responses)
    if body.n_probs:
        return LongJsonResponse(response)
    return JsonResponse(responses[0] if len(responses) == 1 else responses)
