"""llama-server's response to a completion: whole, or as a stream of events."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Literal

from pydantic import BaseModel

from ingot.engine import Completion
from ingot.errors import IngotError
from ingot.sampling import SampledToken
from ingot.server.error_bodies import llama_error
from ingot.server.errors import ApiError, error_info
from ingot.server.generation import Generation, Piece
from ingot.server.http.event_stream import event
from ingot.server.llama.completion_body import LlamaBody
from ingot.server.llama.generation_settings import GenerationSettings, settings_of
from ingot.server.llama.probabilities import Probabilities, probabilities
from ingot.server.timings import CompletionTimings, PromptProgress, progress_of, timings_of

StopType = Literal["none", "eos", "limit", "word"]


class CompletionChunk(BaseModel):
    """A piece of a completion."""

    index: int
    content: str
    tokens: list[int]
    stop: Literal[False] = False
    id_slot: int
    tokens_predicted: int
    tokens_evaluated: int
    timings: CompletionTimings | None = None
    prompt_progress: PromptProgress | None = None
    completion_probabilities: Probabilities | None = None


class CompletionResponse(BaseModel):
    """A completion, its settings and why it ended; at the end of a stream, without its text."""

    index: int
    content: str
    tokens: list[int]
    id_slot: int
    stop: Literal[True] = True
    model: str
    tokens_predicted: int
    tokens_evaluated: int
    generation_settings: GenerationSettings
    prompt: str
    has_new_line: bool
    truncated: bool
    stop_type: StopType
    stopping_word: str
    tokens_cached: int
    timings: CompletionTimings
    completion_probabilities: Probabilities | None = None
    warnings: list[str] | None = None  # about parameters that were ignored


class CompletionResponder:
    """Makes the response to one request."""

    def __init__(self, generation: Generation, body: LlamaBody) -> None:
        self._generation = generation
        self._body = body
        self._tokenizer = generation.llm.tokenizer
        self._sent = [0] * len(generation.requests)  # tokens, in a stream

    async def whole(self) -> list[dict[str, object]]:
        """All completions, once they are done; their probabilities are iterators."""
        completions = await self._generation.results()
        return [self._response(index, each) for index, each in enumerate(completions)]

    async def events(self) -> AsyncIterator[bytes]:
        """The completions as a stream."""
        try:
            async for piece in self._generation.pieces(progress=bool(self._body.return_progress)):
                if piece.done is None:
                    yield event(self._chunk(piece))
                else:
                    yield event(self._response(piece.index, piece.done))
        except (ApiError, IngotError) as error:
            yield event(llama_error(error_info(error)))

    def _chunk(self, piece: Piece) -> dict[str, object]:
        request = self._generation.requests[piece.index]
        choices = request.sampled_tokens(self._sent[piece.index])
        self._sent[piece.index] += len(choices)
        timings = request.timings
        chunk = CompletionChunk(
            index=piece.index,
            content=piece.text,
            tokens=[choice.token for choice in choices],
            id_slot=self._generation.slots.number_of(request),
            tokens_predicted=self._sent[piece.index],
            tokens_evaluated=timings.prompt_tokens,
            timings=timings_of(timings) if self._body.timings_per_token else None,
            prompt_progress=None
            if piece.progress is None
            else progress_of(piece.progress, timings, self._generation.seconds),
        ).model_dump(exclude_none=True)
        if self._body.n_probs:
            chunk["completion_probabilities"] = list(self._probabilities(choices))
        return chunk

    def _response(self, index: int, completion: Completion) -> dict[str, object]:
        request = self._generation.requests[index]
        stop_type, word = _stop(completion)
        streamed = bool(self._body.stream)
        tokens = completion.token_ids if self._body.return_tokens and not streamed else ()
        response = CompletionResponse(
            index=index,
            content="" if streamed else completion.text,
            tokens=list(tokens),
            id_slot=self._generation.slots.number_of(request),
            model=self._generation.model,
            tokens_predicted=len(completion.token_ids),
            tokens_evaluated=completion.timings.prompt_tokens,
            generation_settings=settings_of(
                request.params,
                seed=completion.seed,
                stream=streamed,
                timings_per_token=bool(self._body.timings_per_token),
                adapters=self._generation.llm.engine.adapters.places(request.adapter),
            ),
            prompt=self._tokenizer.decode(request.prompt_ids),
            has_new_line="\n" in completion.text,
            truncated=completion.finish_reason == "context",
            stop_type=stop_type,
            stopping_word=word,
            tokens_cached=completion.timings.reused_tokens,
            timings=timings_of(completion.timings),
            warnings=self._generation.warnings,
        ).model_dump(exclude_none=True)
        if self._body.n_probs and not streamed:
            response["completion_probabilities"] = self._probabilities(request.sampled_tokens())
        return _selected(response, self._body.response_fields)

    def _probabilities(self, choices: Sequence[SampledToken]) -> Iterator[dict[str, object]]:
        after_samplers = bool(self._body.post_sampling_probs)
        return probabilities(self._tokenizer, choices, after_samplers=after_samplers)


def _selected(response: dict[str, object], names: Sequence[str] | None) -> dict[str, object]:
    """The named fields of a response, or all; `timings/prompt_n` names a nested field."""
    if not names:
        return response
    found: dict[str, object] = {}
    for name in names:
        value: object = response
        for part in name.split("/"):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            found[name] = value
    return found


def _stop(completion: Completion) -> tuple[StopType, str]:
    """Why a completion ended, and the stop sequence that ended it."""
    if completion.finish_reason != "stop":
        return "limit", ""
    if isinstance(completion.stopped_by, str):
        return "word", completion.stopped_by
    return "eos", ""
