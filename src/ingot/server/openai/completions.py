"""`/v1/completions`: prompts continued, also scored (`echo` with `logprobs`)."""

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot.api import LLM
from ingot.engine import Completion
from ingot.errors import IngotError
from ingot.sampling import SamplingParams, TokenLogprobs
from ingot.server.body_limits import Few, Tokens
from ingot.server.errors import ApiError
from ingot.server.fill_middle import middle_prompt
from ingot.server.generation import Generation, Guidance, Piece, PromptSet, while_connected
from ingot.server.http.access_log import record_of
from ingot.server.http.event_stream import DONE, STREAMED, EventStream, event, long_event
from ingot.server.http.json_response import JsonResponse, LongJsonResponse, dumps
from ingot.server.openai.logprobs import CompletionLogprobs, CompletionLogprobsWriter
from ingot.server.openai.shared import (
    ERRORS,
    FINGERPRINT,
    Choices,
    Prompts,
    StreamOptions,
    Usage,
    error_events,
    finish_reason,
    new_id,
    now,
    prompt_list,
    usage_of,
)
from ingot.server.parameters import check_parameters
from ingot.server.prompt_logprobs import prompt_logprobs
from ingot.server.prompt_tokens import PromptTokens, kept_tokens
from ingot.server.request_adapters import AdapterScale, adapter_choice
from ingot.server.sampling_body import Number, SamplingBody, params_of
from ingot.server.state import Server
from ingot.server.threads import run_in_thread
from ingot.server.timings import CompletionTimings, progress_of, timings_of

_DEFAULT_TOKENS = 16  # OpenAI's default


class CompletionBody(SamplingBody):
    """Prompts, and how to continue them."""

    model: str | None = None
    prompt: Prompts
    suffix: str | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=1000)] | None = None
    n_probs: Annotated[int, Field(ge=0, le=1000)] | None = None
    n: Choices | None = None
    best_of: Choices | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: dict[str, Any] | None = None
    negative_prompt: str | Tokens | None = None
    cfg_scale: Number | None = None
    token_healing: bool | None = None
    truncate_prompt_tokens: PromptTokens | None = None
    include_stop_str_in_output: bool | None = None
    timings_per_token: bool | None = None
    return_progress: bool | None = None
    lora: Few[AdapterScale] | None = None
    user: str | None = None

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def alternatives(self) -> int | None:
        """How many alternatives the logprobs have; None: no logprobs are wanted."""
        return self.logprobs if self.logprobs is not None else self.n_probs or None


class Choice(BaseModel):
    """One completion."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: Literal["stop", "length"] | None = None


class CompletionResponse(BaseModel):
    """The completions of all prompts, in the order of the prompts."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str = FINGERPRINT
    choices: list[Choice]
    usage: Usage | None = None
    timings: CompletionTimings | None = None  # of the first completion
    warnings: list[str] | None = None  # about parameters that were ignored


def router(server: Server) -> APIRouter:
    """The endpoint."""
    routes = APIRouter(responses=ERRORS)

    @routes.post("/v1/completions", response_model=CompletionResponse, responses=STREAMED)
    async def completions(body: CompletionBody, http: HttpRequest) -> Response:
        """Continue prompts."""
        check_parameters(body, record_of(http.scope), server.options)
        plan = _plan(body, server)
        scores: list[list[TokenLogprobs]] = []
        if body.echo and body.alternatives is not None:
            asked = _scores(body, server, body.alternatives, plan.params.max_tokens)
            scores = await while_connected(http.receive, asked)
        prompts: list[NDArray[np.int32]] = []

        def prepare(llm: LLM) -> PromptSet:
            prompts.extend(_encoded(llm, body, plan.params.max_tokens))
            return PromptSet(
                prompts,
                plan.params,
                plan.best_of,
                include_stop=bool(body.include_stop_str_in_output),
                guidance=_guidance(llm, body),
                heal=bool(body.token_healing),
                lora=body.lora,
                priority=body.priority or 0,
                speculation=body.speculation or "auto",
            )

        generation = await server.generations.begin(
            server.catalog, body.model, record_of(http.scope), prepare, http.receive
        )
        responder = _Responder(generation, body, plan, prompts, scores)
        if body.stream:
            return EventStream(generation, responder.events())
        async with generation:
            response = await while_connected(http.receive, responder.whole())
        return JsonResponse(response) if body.alternatives is None else LongJsonResponse(response)

    return routes


def _encoded(llm: LLM, body: CompletionBody, generated: int | None) -> list[NDArray[np.int32]]:
    """The tokens of every prompt; with a suffix, fill-in-the-middle prompts.

    The client writes a whole prompt, so control tokens that it spells are tokens.
    """
    prompts: Sequence[str | list[int]] = prompt_list(body.prompt)
    if body.suffix is not None:
        prompts = [middle_prompt(llm.tokenizer, prompt, body.suffix) for prompt in prompts]
    encode = partial(llm.tokenizer.encode, parse_special=True)
    most = kept_tokens(body.truncate_prompt_tokens, llm.context, generated=generated or 1)
    kept = slice(-(most or 0), None)
    return [
        llm.engine.encode((encode(prompt) if isinstance(prompt, str) else prompt)[kept])
        for prompt in prompts
    ]


def _guidance(llm: LLM, body: CompletionBody) -> Guidance | None:
    scale = 1.0 if body.cfg_scale is None else body.cfg_scale
    if body.negative_prompt is None:
        if scale != 1.0:
            raise ApiError(400, "cfg_scale needs a negative_prompt", param="cfg_scale")
        return None
    negative = body.negative_prompt
    if isinstance(negative, str):
        negative = llm.tokenizer.encode(negative, parse_special=True)
    return Guidance(negative, scale)


async def _scores(
    body: CompletionBody, server: Server, count: int, generated: int | None
) -> list[list[TokenLogprobs]]:
    """The logprobs of every prompt. The completions reuse the prefill from the prefix cache."""
    with await server.catalog.lease(body.model) as lease:
        prompts = await run_in_thread(_encoded, lease.llm, body, generated)
        adapter = adapter_choice(lease.llm, body.lora, lease.adapter)
        return await prompt_logprobs(lease.llm, prompts, count, adapter)


@dataclass(frozen=True, slots=True)
class _Plan:
    """Sampling parameters, completions to return, completions to generate."""

    params: SamplingParams
    n: int
    best_of: int


def _plan(body: CompletionBody, server: Server) -> _Plan:
    n = body.n or 1
    best_of = body.best_of or n
    if best_of < n:
        raise ApiError(400, f"best_of is {best_of}; it must be at least n, {n}", param="best_of")
    if body.stream and best_of > n:
        raise ApiError(
            400,
            "best_of cannot be streamed, because the best are known only at the end",
            param="best_of",
        )
    if body.suffix is not None and body.echo:
        raise ApiError(400, "echo cannot be combined with suffix", param="suffix")
    params = params_of(
        body,
        server.request_options(body.model),
        default_tokens=_DEFAULT_TOKENS,
        logprobs=body.alternatives,
        response_format=body.response_format,
    )
    if best_of > n:
        params = replace(params, logprobs=True)
    return _Plan(params, n, best_of)


class _Responder:
    """Makes the response to one request."""

    def __init__(
        self,
        generation: Generation,
        body: CompletionBody,
        plan: _Plan,
        prompts: Sequence[NDArray[np.int32]],
        scores: Sequence[list[TokenLogprobs]],
    ) -> None:
        self._generation = generation
        self._body = body
        self._plan = plan
        self._prompts = prompts
        self._scores = scores or [[] for _ in prompts]
        self._id = new_id("cmpl-")
        self._created = now()
        self._tokenizer = generation.llm.tokenizer
        self._warnings = generation.warnings  # until they are sent

    async def whole(self) -> dict[str, object]:
        """The response, once all completions are done; with logprobs, lists are iterators."""
        completions = await self._generation.results()
        best_of, n = self._plan.best_of, self._plan.n
        kept = [
            completion
            for start in range(0, len(completions), best_of)
            for completion in _best(completions[start : start + best_of], n)
        ]
        choices = (self._choice(index, completion) for index, completion in enumerate(kept))
        response = self._response(usage_of(completions, len(self._prompts)))
        response["timings"] = timings_of(completions[0].timings).model_dump()
        lazy = self._body.alternatives is not None
        return {**response, "choices": choices if lazy else list(choices)}

    async def events(self) -> AsyncIterator[bytes]:
        """The response as a stream of chunks."""
        try:
            writers: list[CompletionLogprobsWriter] = []
            for index in range(len(self._generation.requests)):
                writers.append(CompletionLogprobsWriter(self._tokenizer))
                if self._body.echo:
                    async for piece_of_event in long_event(self._echo_chunk(index, writers[index])):
                        yield piece_of_event
            frames = [self._frame(index) for index in range(len(writers))]
            sent = [0] * len(writers)
            completions: dict[int, Completion] = {}
            async for piece in self._generation.pieces(progress=bool(self._body.return_progress)):
                if self._is_plain(piece):
                    before, after = frames[piece.index]
                    yield f"{before}{dumps(piece.text)}{after}".encode()
                    continue
                request = self._generation.requests[piece.index]
                choice = Choice(index=piece.index, text=piece.text)
                if piece.done is not None:
                    completions[piece.index] = piece.done
                    choice.finish_reason = finish_reason(piece.done.finish_reason)
                logprobs = None
                if self._body.alternatives is not None:
                    found = request.logprobs[sent[piece.index] :]
                    sent[piece.index] += len(found)
                    columns = writers[piece.index].write([*found, *self._ending(piece.done)])
                    logprobs = {name: list(column) for name, column in columns.items()}
                chunk = self._chunk({**choice.model_dump(), "logprobs": logprobs})
                if piece.progress is not None:
                    seconds = self._generation.seconds
                    progress = progress_of(piece.progress, request.timings, seconds)
                    chunk["prompt_progress"] = progress.model_dump()
                elif piece.done is not None or self._body.timings_per_token:
                    chunk["timings"] = timings_of(request.timings).model_dump()
                yield event(chunk)
            if self._body.includes_usage:
                done = [completions[index] for index in range(len(completions))]
                yield event({**self._response(usage_of(done, len(self._prompts))), "choices": []})
            yield DONE
        except (ApiError, IngotError) as error:
            yield error_events(error)

    def _is_plain(self, piece: Piece) -> bool:
        """Whether a chunk holds nothing but text, and no chunk before it is still due."""
        return (
            piece.done is None
            and piece.progress is None
            and self._body.alternatives is None
            and not self._body.timings_per_token
            and self._warnings is None
        )

    def _frame(self, index: int) -> tuple[str, str]:
        """What comes before and after the text in the chunks of a completion that hold only text.

        It is made once: most chunks are such ones.
        """
        mark = "\x00"
        warnings, self._warnings = self._warnings, None
        chunk = dumps(self._chunk(Choice(index=index, text=mark).model_dump()))
        self._warnings = warnings
        before, _, after = chunk.partition(dumps(mark))
        return f"data: {before}", f"{after}\n\n"

    def _echo(self, prompt: int) -> str:
        if not self._body.echo:
            return ""
        return self._tokenizer.decode(self._prompts[prompt].tolist())

    def _echo_chunk(self, index: int, writer: CompletionLogprobsWriter) -> dict[str, object]:
        """The chunk of a prompt, with its logprobs as iterators."""
        prompt = index // self._plan.n
        logprobs = None
        if self._body.alternatives is not None:
            logprobs = writer.write(self._scores[prompt], first=int(self._prompts[prompt][0]))
        choice = Choice(index=index, text=self._echo(prompt)).model_dump()
        choice["logprobs"] = logprobs
        return {**self._chunk(choice), "choices": iter([choice])}

    def _ending(self, completion: Completion | None) -> list[TokenLogprobs]:
        """The logprobs of the token that ended a completion.

        Clients that score prompts ask for one more token and drop it, so it must be there.
        """
        ending = completion.ending if completion else None
        return [ending] if self._body.echo and ending else []

    def _choice(self, index: int, completion: Completion) -> dict[str, object]:
        prompt = index // self._plan.n
        logprobs: dict[str, Iterator[object]] | None = None
        if self._body.alternatives is not None:
            first = int(self._prompts[prompt][0]) if self._body.echo else None
            found = [*self._scores[prompt], *completion.logprobs, *self._ending(completion)]
            logprobs = CompletionLogprobsWriter(self._tokenizer).write(found, first)
        choice = Choice(
            index=index,
            text=self._echo(prompt) + completion.text,
            finish_reason=finish_reason(completion.finish_reason),
        )
        return {**choice.model_dump(), "logprobs": logprobs}

    def _chunk(self, choice: dict[str, object]) -> dict[str, object]:
        chunk = {**self._response(None), "choices": [choice]}
        if not self._body.includes_usage:
            del chunk["usage"]
        return chunk

    def _response(self, usage: Usage | None) -> dict[str, object]:
        response = CompletionResponse(
            id=self._id,
            created=self._created,
            model=self._generation.model,
            choices=[],
            usage=usage,
            warnings=self._warnings,
        ).model_dump()
        for name in ("timings", "warnings"):  # present only if they have a value
            if response[name] is None:
                del response[name]
        self._warnings = None
        return response


def _best(completions: Sequence[Completion], count: int) -> list[Completion]:
    """The completions with the highest mean logprob, best first; all, in order, if all are kept."""
    if count == len(completions):
        return list(completions)

    def mean(completion: Completion) -> float:
        return sum(entry.logprob for entry in completion.logprobs) / max(
            len(completion.logprobs), 1
        )

    return sorted(completions, key=mean, reverse=True)[:count]
