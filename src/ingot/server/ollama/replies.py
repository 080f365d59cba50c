"""Ollama's responses to `/api/chat` and `/api/generate`: whole, or as lines of JSON.

The completion of one prompt comes in. The shape of a part (a message, or a text) is the endpoint's.
"""

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_core import from_json

from ingot.api import LLM
from ingot.engine import Completion
from ingot.errors import IngotError
from ingot.reply import Content, Event, Reasoning, ToolCallArguments, ToolCallBegin
from ingot.reply.events import merged
from ingot.reply.json_reader import is_value
from ingot.server.chat import ReplyReader
from ingot.server.error_bodies import ollama_error
from ingot.server.errors import ApiError, error_info
from ingot.server.generation import Generation, PromptSet
from ingot.server.http.access_log import AccessRecord
from ingot.server.http.event_stream import line
from ingot.server.ollama.options_body import ModelBody, TextBody, keep_alive_seconds
from ingot.server.openai.logprobs import TokenLogprob, token_logprobs
from ingot.server.state import Server

_NANOSECONDS = 1e9


class Counts(BaseModel):
    """What every last response has: why the text ended, tokens, and times in nanoseconds."""

    done: bool
    done_reason: Literal["stop", "length", "load", "unload"] | None = None
    total_duration: int | None = None
    load_duration: int | None = None
    prompt_eval_count: int | None = None
    prompt_eval_duration: int | None = None
    eval_count: int | None = None
    eval_duration: int | None = None
    logprobs: list[TokenLogprob] | None = None
    warnings: list[str] | None = None  # about parameters that were ignored


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a reply, or the whole."""

    content: str = ""
    thinking: str = ""
    calls: Sequence[dict[str, Any]] = ()


Shape = Callable[[Part], dict[str, object]]


class LoadClock:
    """Measures how long a model took to open: until its first prompt is made."""

    def __init__(self, record: AccessRecord) -> None:
        self._record = record
        self.nanoseconds = 0

    def around(self, prepare: Callable[[LLM], PromptSet]) -> Callable[[LLM], PromptSet]:
        """The function that makes the prompts, timed."""

        def timed(llm: LLM) -> PromptSet:
            self.nanoseconds = elapsed(self._record)
            return prepare(llm)

        return timed


def elapsed(record: AccessRecord) -> int:
    """Nanoseconds since a request arrived."""
    return int((time.perf_counter() - record.started) * _NANOSECONDS)


def timestamp() -> str:
    """The current time, in the form of RFC 3339."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


class Responder:
    """Makes the response to one request."""

    def __init__(
        self,
        generation: Generation,
        body: TextBody,
        reader: ReplyReader | None,
        clock: LoadClock,
        shape: Shape,
        more: Callable[[Completion], dict[str, object]] = lambda _: {},
    ) -> None:
        """Without a reader, the text is the content. `more` are fields of the last response."""
        self._generation = generation
        self._model = body.model
        self._wants_logprobs = bool(body.logprobs)
        self._reader = reader
        self._parser = None if reader is None else reader.parser()
        self._clock = clock
        self._shape = shape
        self._more = more
        self._sent = 0  # tokens whose logprobs were sent

    async def whole(self) -> dict[str, object]:
        """The response, once the text is complete."""
        (done,) = await self._generation.results()
        parts = list(_Parts().of(self._events(done.text, done), is_last=True))
        part = Part(
            "".join(each.content for each in parts),
            "".join(each.thinking for each in parts),
            [call for each in parts for call in each.calls],
        )
        return self._last(done, part)

    async def lines(self) -> AsyncIterator[bytes]:
        """The response as a stream: a line for each piece of text."""
        parts = _Parts()
        try:
            async for piece in self._generation.pieces():
                events = self._events(piece.text, piece.done)
                for part in parts.of(events, is_last=piece.done is not None):
                    yield line({**self._head(part), "done": False, **self._logprobs()})
                if piece.done is not None:
                    yield line(self._last(piece.done, Part()))
        except (ApiError, IngotError) as error:
            yield line(ollama_error(error_info(error)))

    def _events(self, text: str, done: Completion | None) -> list[Event]:
        """The events of a piece of text; `done` if it is the last."""
        if self._parser is None or self._reader is None:
            return [Content(text)] if text else []
        events = list(self._parser.push(text))
        if done is not None:
            events += self._parser.finish(cut=done.is_cut)
        return merged(self._reader.allowed(events))

    def _head(self, part: Part) -> dict[str, object]:
        return {"model": self._model, "created_at": timestamp(), **self._shape(part)}

    def _last(self, done: Completion, part: Part) -> dict[str, object]:
        timings = done.timings
        counts = Counts(
            done=True,
            done_reason="stop" if done.finish_reason == "stop" else "length",
            total_duration=elapsed(self._generation.record),
            load_duration=self._clock.nanoseconds,
            prompt_eval_count=timings.prompt_tokens,
            prompt_eval_duration=int(timings.prompt_seconds * _NANOSECONDS),
            eval_count=timings.generated_tokens,
            eval_duration=int(timings.generation_seconds * _NANOSECONDS),
            warnings=self._generation.warnings,
        ).model_dump(exclude_none=True)
        return {**self._head(part), **counts, **self._logprobs(), **self._more(done)}

    def _logprobs(self) -> dict[str, object]:
        """The logprobs of tokens that were not sent yet, if the client wants them."""
        if not self._wants_logprobs:
            return {}
        (request,) = self._generation.requests
        found = request.logprobs[self._sent :]
        self._sent += len(found)
        written = list(token_logprobs(self._generation.llm.tokenizer, found))
        return {"logprobs": written} if written else {}


class _Parts:
    """Makes parts of events; a tool call is a part once it is complete."""

    def __init__(self) -> None:
        self._call: ToolCallBegin | None = None
        self._arguments = ""

    def of(self, events: Iterable[Event], *, is_last: bool) -> Iterator[Part]:
        """The parts that events complete."""
        for event in events:
            match event:
                case Content(text):
                    yield from self._ended()
                    yield Part(content=text)
                case Reasoning(text):
                    yield from self._ended()
                    yield Part(thinking=text)
                case ToolCallBegin():
                    yield from self._ended()
                    self._call = event
                case ToolCallArguments(_, text):
                    self._arguments += text
        if is_last:
            yield from self._ended()

    def _ended(self) -> Iterator[Part]:
        """The open call, unless a limit has cut its arguments off."""
        call, arguments = self._call, self._arguments
        self._call, self._arguments = None, ""
        if call is None or not is_value(arguments):
            return
        given: Any = {}
        with suppress(ValueError):  # nested too deeply, or not valid Unicode
            given = from_json(arguments)
        function = {"index": call.index, "name": call.name, "arguments": given}
        yield Part(calls=[{"id": call.id, "function": function}])


async def load(server: Server, body: TextBody, record: AccessRecord) -> dict[str, object]:
    """The response to a request without a prompt: the model is loaded, or closed if unused."""
    reason: Literal["load", "unload"] = "load"
    if keep_alive_seconds(body.keep_alive) == 0:
        await server.catalog.close_idle()
        reason = "unload"
    else:
        with await server.catalog.lease(body.model) as lease:
            record.model = lease.name
    counts = Counts(done=True, done_reason=reason, warnings=record.warnings or None)
    head = {"model": body.model, "created_at": timestamp()}
    return {**head, **counts.model_dump(exclude_none=True)}


def keep_alive(server: Server, body: ModelBody) -> None:
    """Set how long the model of a body stays loaded."""
    server.catalog.find(body.model).keep_alive = keep_alive_seconds(body.keep_alive)
