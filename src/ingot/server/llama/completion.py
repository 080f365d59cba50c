"""`/completion`: prompts continued."""

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot.api import LLM
from ingot.server.call import call_of
from ingot.server.json_answer import JsonAnswer
from ingot.server.llama.answering import Answering, CompletionAnswer, chosen_fields
from ingot.server.llama.body import LlamaBody, asked
from ingot.server.llama.prompts import Prompts, listed, tokens_of
from ingot.server.several import Texts
from ingot.server.sse import STREAMED, EventStream
from ingot.server.state import Server
from ingot.server.writing import while_connected

# One text, several, or the fields of it that were asked for.
Answers = CompletionAnswer | list[CompletionAnswer] | dict[str, Any] | list[dict[str, Any]]


class CompletionBody(LlamaBody):
    """Prompts, and how they are to be continued."""

    prompt: Prompts


def router(server: Server) -> APIRouter:
    """The endpoint, under both of its names."""
    made = APIRouter()

    @made.post("/completion", response_model=Answers, responses=STREAMED)
    @made.post("/completions", include_in_schema=False, response_model=Answers)
    async def completion(body: CompletionBody, http: HttpRequest) -> Response:
        """Continue prompts."""
        prompts = listed(body.prompt)

        def tokens(llm: LLM) -> list[list[int]]:
            return [tokens_of(llm, prompt) for prompt in prompts]

        return await complete(server, body, http, tokens)

    return made


async def complete(
    server: Server,
    body: LlamaBody,
    http: HttpRequest,
    tokens: Callable[[LLM], Sequence[Sequence[int]]],
) -> Response:
    """Continue the prompts that `tokens` makes; several texts are answered with a list."""
    count = body.n_cmpl or 1

    def texts(llm: LLM) -> Texts:
        params = asked(body, llm, server.options)
        prompts = [llm.engine.model.check_ids(prompt) for prompt in tokens(llm)]
        return Texts(prompts, params, count, reuse=body.cache_prompt is not False)

    writing = await server.writings.begin(
        server.catalog, body.model, call_of(http.scope), texts, http.receive, slot=body.id_slot
    )
    answering = Answering(writing, body)
    if body.stream:
        return EventStream(writing, answering.events())
    async with writing:
        answers = await while_connected(http.receive, answering.whole())
    told = [chosen_fields(answer, body.response_fields) for answer in answers]
    return JsonAnswer(told if len(told) > 1 else told[0])
