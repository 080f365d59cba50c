"""`/api/generate`: one prompt, rendered by the chat template or used as it is, in Ollama's form."""

from dataclasses import replace
from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot.api import LLM
from ingot.engine import Completion
from ingot.server.body_limits import Tokens
from ingot.server.chat import Chat, PreparedChat
from ingot.server.errors import ApiError
from ingot.server.fill_middle import middle_prompt
from ingot.server.generation import PromptSet, while_connected
from ingot.server.http.access_log import record_of
from ingot.server.http.event_stream import LINES, STREAMED_LINES, EventStream
from ingot.server.http.json_response import JsonResponse
from ingot.server.ollama.options_body import (
    TextBody,
    check_body,
    check_thinking,
    params_of_body,
    thinking_options,
)
from ingot.server.ollama.replies import Counts, LoadClock, Part, Responder, keep_alive, load
from ingot.server.options import RequestOptions
from ingot.server.state import Server


class GenerateBody(TextBody):
    """A prompt, and how to continue it; without a prompt, the model is only loaded."""

    prompt: str | None = None
    suffix: str | None = None  # the text after a gap, which is filled
    system: str | None = None
    raw: bool | None = None  # use the prompt without the chat template
    context: Tokens | None = None  # of an earlier response, which this prompt continues


class GenerateResponse(Counts):
    """The response to a prompt."""

    model: str
    created_at: str
    response: str
    thinking: str | None = None
    context: list[int] | None = None  # the tokens of the prompt and of the response


def router(server: Server) -> APIRouter:
    """The endpoint."""
    routes = APIRouter()

    @routes.post("/api/generate", response_model=GenerateResponse, responses=STREAMED_LINES)
    async def generate(body: GenerateBody, http: HttpRequest) -> Response:
        """Continue a prompt."""
        record = record_of(http.scope)
        check_body(body, record, server.options)
        _refuse(body)
        keep_alive(server, body)
        if not body.prompt and body.suffix is None:
            return JsonResponse({**await load(server, body, record), **_text(Part())})
        prompt = _Prompt(body, server.request_options(body.model))
        clock = LoadClock(record)
        generation = await server.generations.begin(
            server.catalog, body.model, record, clock.around(prompt), http.receive
        )

        def context(done: Completion) -> dict[str, Any]:
            (request,) = generation.requests
            return {} if body.raw else {"context": [*request.prompt_ids, *done.token_ids]}

        reader = prompt.chat.reader if prompt.is_rendered else None
        responder = Responder(generation, body, reader, clock, _text, context)
        if body.stream is not False:
            return EventStream(generation, responder.lines(), LINES)
        async with generation:
            return JsonResponse(await while_connected(http.receive, responder.whole()))

    return routes


def _text(part: Part) -> dict[str, object]:
    return {"response": part.content, **({"thinking": part.thinking} if part.thinking else {})}


def _refuse(body: GenerateBody) -> None:
    """Refuse what would be left out of the prompt silently."""
    if body.raw and (body.system or body.context):
        name = "system" if body.system else "context"
        raise ApiError(400, f"a raw prompt is the whole prompt: it has no {name}", param=name)
    if body.suffix is not None and (body.raw or body.system or body.context):
        raise ApiError(400, "suffix cannot be combined with raw, system or context", param="suffix")


class _Prompt:
    """Makes the prompt of a body for a model."""

    def __init__(self, body: GenerateBody, options: RequestOptions) -> None:
        self._body = body
        self._params = params_of_body(body, options)
        self.is_rendered = body.suffix is None and not body.raw
        messages = [{"role": "user", "content": body.prompt or ""}]
        if body.system:
            messages.insert(0, {"role": "system", "content": body.system})
        self.chat = PreparedChat(
            Chat(
                messages,
                self._params,
                separates_reasoning=options.separates_reasoning,
                priority=body.priority,
                speculation=body.speculation,
                template_options=thinking_options(body.think),
            )
        )

    def __call__(self, llm: LLM) -> PromptSet:
        body = self._body
        if self.is_rendered:
            check_thinking(llm, body)
            return self._continued(llm, self.chat(llm))
        if body.suffix is not None:
            ids = middle_prompt(llm.tokenizer, body.prompt or "", body.suffix)
        else:
            ids = llm.tokenizer.encode(body.prompt or "", parse_special=True)
        return PromptSet(
            [llm.engine.encode(ids)],
            self._params,
            priority=body.priority,
            speculation=body.speculation,
        )

    def _continued(self, llm: LLM, rendered: PromptSet) -> PromptSet:
        """The prompt after the context of an earlier response, which begins with BOS already."""
        if self._body.context is None:
            return rendered
        (ids,) = rendered.prompts
        if len(ids) and ids[0] == llm.tokenizer.bos_id:
            ids = ids[1:]
        both = np.concatenate([self._body.context, ids])
        return replace(rendered, prompts=[llm.engine.encode(both.tolist())])
