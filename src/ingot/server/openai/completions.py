"""`/v1/completions`: prompts continued, also scored (`echo` with `logprobs`)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
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
from ingot.server.call import call_of
from ingot.server.errors import ApiError
from ingot.server.fill_middle import middle_prompt
from ingot.server.openai.answers import (
    ERRORS,
    FINGERPRINT,
    Usage,
    error_events,
    finish_reason,
    new_id,
    now,
    usage_of,
)
from ingot.server.openai.completion_logprobs import CompletionLogprobs, LogprobsWriter
from ingot.server.openai.prompts import Prompts, listed
from ingot.server.prompt_logprobs import prompt_logprobs
from ingot.server.sampling_body import Body, SamplingBody, params_of
from ingot.server.several import Texts
from ingot.server.sse import DONE, STREAMED, EventStream, event
from ingot.server.state import Server
from ingot.server.writing import Writing, while_connected

MAX_CHOICES = 128
_DEFAULT_TOKENS = 16  # written where nothing is said about it, as OpenAI has it
Choices = Annotated[int, Field(ge=1, le=MAX_CHOICES)]


class StreamOptions(Body):
    """What a stream is to have."""

    include_usage: bool | None = None


class CompletionBody(SamplingBody):
    """Prompts, and how they are to be continued."""

    model: str | None = None
    prompt: Prompts
    suffix: str | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=1000)] | None = None
    n: Choices | None = None
    best_of: Choices | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: dict[str, Any] | None = None
    user: str | None = None


class Choice(BaseModel):
    """One continuation."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: Literal["stop", "length"] | None = None


class CompletionAnswer(BaseModel):
    """The continuations of all prompts, prompt by prompt."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str = FINGERPRINT
    choices: list[Choice]
    usage: Usage | None = None


def router(server: Server) -> APIRouter:
    """The endpoint."""
    made = APIRouter(responses=ERRORS)

    @made.post("/v1/completions", response_model=CompletionAnswer, responses=STREAMED)
    async def completions(body: CompletionBody, http: HttpRequest) -> Response | CompletionAnswer:
        """Continue prompts."""
        asked = _asked(body, server)
        scores: list[list[TokenLogprobs]] = []
        if body.echo and body.logprobs is not None:
            scores = await while_connected(http.receive, _scores(body, server, body.logprobs))
        prompts: list[NDArray[np.int32]] = []

        def texts(llm: LLM) -> Texts:
            prompts.extend(_encoded(llm, body))
            return Texts(prompts, asked.params, asked.best_of)

        writing = await server.writings.begin(
            server.catalog, body.model, call_of(http.scope), texts, http.receive
        )
        answer = _Answer(writing, body, asked, prompts, scores)
        if body.stream:
            return EventStream(writing, answer.events())
        async with writing:
            return await while_connected(http.receive, answer.whole())

    return made


def _encoded(llm: LLM, body: CompletionBody) -> list[NDArray[np.int32]]:
    """The tokens of every prompt; with a suffix, of one whose middle is to be filled in.

    Who writes a whole prompt writes its control tokens, too: they are tokens.
    """
    prompts: Sequence[str | list[int]] = listed(body.prompt)
    if body.suffix is not None:
        prompts = [middle_prompt(llm.tokenizer, prompt, body.suffix) for prompt in prompts]
    encode = partial(llm.tokenizer.encode, parse_special=True)
    return [
        llm.engine.encode(encode(prompt) if isinstance(prompt, str) else prompt)
        for prompt in prompts
    ]


async def _scores(body: CompletionBody, server: Server, count: int) -> list[list[TokenLogprobs]]:
    """Of every prompt. They are read for it, so that texts find them in the cache afterwards."""
    lease = await server.catalog.lease(body.model)
    try:
        prompts = await asyncio.to_thread(_encoded, lease.llm, body)
        return await prompt_logprobs(lease.llm, prompts, count)
    finally:
        lease.release()


@dataclass(frozen=True, slots=True)
class _Asked:
    """What was asked for, with what follows from it."""

    params: SamplingParams
    n: int
    best_of: int


def _asked(body: CompletionBody, server: Server) -> _Asked:
    n = body.n or 1
    best_of = body.best_of or n
    if best_of < n:
        raise ApiError(400, f"best_of is {best_of}; it must be at least n, {n}", param="best_of")
    if body.stream and best_of > n:
        raise ApiError(400, "best_of cannot be streamed: its best are known last", param="best_of")
    if body.suffix is not None and body.echo:
        raise ApiError(400, "a prompt with a suffix has no echo", param="suffix")
    params = params_of(
        body,
        server.options,
        default_tokens=_DEFAULT_TOKENS,
        logprobs=body.logprobs,
        response_format=body.response_format,
    )
    if best_of > n:
        params = replace(params, logprobs=True)
    return _Asked(params, n, best_of)


class _Answer:
    """Makes the answer of texts that are being written."""

    def __init__(
        self,
        writing: Writing,
        body: CompletionBody,
        asked: _Asked,
        prompts: Sequence[NDArray[np.int32]],
        scores: Sequence[list[TokenLogprobs]],
    ) -> None:
        self._writing = writing
        self._body = body
        self._asked = asked
        self._prompts = prompts
        self._scores = scores or [[] for _ in prompts]
        self._id = new_id("cmpl")
        self._created = now()
        self._tokenizer = writing.llm.tokenizer

    async def whole(self) -> CompletionAnswer:
        """The answer, once all texts are there."""
        texts = await self._writing.results()
        kept = [
            text
            for start in range(0, len(texts), self._asked.best_of)
            for text in _best(texts[start : start + self._asked.best_of], self._asked.n)
        ]
        choices = [self._choice(index, text) for index, text in enumerate(kept)]
        return self._made(choices, usage_of(texts, len(self._prompts)))

    async def events(self) -> AsyncIterator[bytes]:
        """The answer as it comes."""
        try:
            writers: list[LogprobsWriter] = []
            for index in range(len(self._writing.requests)):
                echo = self._echo(index // self._asked.n)
                writers.append(LogprobsWriter(self._tokenizer))
                if self._body.echo:
                    logprobs = self._prompt_logprobs(index, writers[index])
                    yield event(self._chunk(Choice(index=index, text=echo, logprobs=logprobs)))
            told = [0] * len(writers)
            texts: dict[int, Completion] = {}
            async for piece in self._writing.pieces():
                request = self._writing.requests[piece.index]
                choice = Choice(index=piece.index, text=piece.text)
                if piece.done is not None:
                    texts[piece.index] = piece.done
                    choice.finish_reason = finish_reason(piece.done.finish_reason)
                if self._body.logprobs is not None:
                    found = request.logprobs[told[piece.index] :]
                    told[piece.index] += len(found)
                    ending = self._ending(piece.done)
                    choice.logprobs = writers[piece.index].write([*found, *ending])
                yield event(self._chunk(choice))
            if self._body.stream_options and self._body.stream_options.include_usage:
                done = [texts[index] for index in range(len(texts))]
                usage = usage_of(done, len(self._prompts))
                yield event(self._made([], usage).model_dump())
            yield DONE
        except (ApiError, IngotError) as error:
            yield error_events(error)

    def _echo(self, prompt: int) -> str:
        if not self._body.echo:
            return ""
        return self._tokenizer.decode(self._prompts[prompt].tolist())

    def _prompt_logprobs(self, index: int, writer: LogprobsWriter) -> CompletionLogprobs | None:
        if self._body.logprobs is None:
            return None
        prompt = index // self._asked.n
        return writer.write(self._scores[prompt], first=int(self._prompts[prompt][0]))

    def _ending(self, text: Completion | None) -> list[TokenLogprobs]:
        """What is told of the token that ended a text.

        Who scores prompts asks for one token more and takes it off: it must be there.
        """
        return [text.ending] if self._body.echo and text and text.ending else []

    def _choice(self, index: int, text: Completion) -> Choice:
        prompt = index // self._asked.n
        logprobs = None
        if self._body.logprobs is not None:
            first = int(self._prompts[prompt][0]) if self._body.echo else None
            found = [*self._scores[prompt], *text.logprobs, *self._ending(text)]
            logprobs = LogprobsWriter(self._tokenizer).write(found, first)
        return Choice(
            index=index,
            text=self._echo(prompt) + text.text,
            logprobs=logprobs,
            finish_reason=finish_reason(text.finish_reason),
        )

    def _chunk(self, choice: Choice) -> dict[str, Any]:
        made = self._made([choice], None).model_dump()
        if not (self._body.stream_options and self._body.stream_options.include_usage):
            del made["usage"]
        return made

    def _made(self, choices: list[Choice], usage: Usage | None) -> CompletionAnswer:
        return CompletionAnswer(
            id=self._id,
            created=self._created,
            model=self._writing.model,
            choices=choices,
            usage=usage,
        )


def _best(texts: Sequence[Completion], count: int) -> list[Completion]:
    """Those whose tokens are likeliest on average, best first; all, as they come, if so many."""
    if count == len(texts):
        return list(texts)

    def mean(text: Completion) -> float:
        return sum(entry.logprob for entry in text.logprobs) / max(len(text.logprobs), 1)

    return sorted(texts, key=mean, reverse=True)[:count]
