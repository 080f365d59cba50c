"""From texts that are being written to llama-server's answers: whole, or as events."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal

from pydantic import BaseModel

from ingot.engine import Completion
from ingot.errors import IngotError
from ingot.server.errors import ApiError, facts_of, llama_error
from ingot.server.llama.answers import TextTimings, timings_of
from ingot.server.llama.body import LlamaBody
from ingot.server.llama.probabilities import Probabilities, probabilities
from ingot.server.llama.settings import GenerationSettings, settings_of
from ingot.server.sse import event
from ingot.server.writing import Piece, Writing

StopType = Literal["none", "eos", "limit", "word"]


class CompletionChunk(BaseModel):
    """Some more of a text."""

    index: int
    content: str
    tokens: list[int]
    stop: Literal[False] = False
    id_slot: int
    tokens_predicted: int
    tokens_evaluated: int
    timings: TextTimings | None = None
    completion_probabilities: Probabilities | None = None


class CompletionAnswer(BaseModel):
    """A text, how it was chosen and why it ended; at the end of a stream without the text."""

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
    timings: TextTimings
    completion_probabilities: Probabilities | None = None


class Answering:
    """Makes the answers to one call."""

    def __init__(self, writing: Writing, body: LlamaBody) -> None:
        self._writing = writing
        self._body = body
        self._tokenizer = writing.llm.tokenizer
        self._told = [0] * len(writing.requests)  # tokens that readers of a stream have

    async def whole(self) -> list[CompletionAnswer]:
        """All texts, once they are there."""
        texts = await self._writing.results()
        return [self._answer(index, text) for index, text in enumerate(texts)]

    async def events(self) -> AsyncIterator[bytes]:
        """The texts as they come."""
        try:
            async for piece in self._writing.pieces():
                if piece.done is None:
                    chunk = self._chunk(piece)
                    yield event(chunk.model_dump(exclude_none=True))
                else:
                    answer = self._answer(piece.index, piece.done)
                    yield event(chosen_fields(answer, self._body.response_fields))
        except (ApiError, IngotError) as error:
            yield event(llama_error(facts_of(error)))

    def _chunk(self, piece: Piece) -> CompletionChunk:
        request = self._writing.requests[piece.index]
        choices = request.sampled_tokens(self._told[piece.index])
        self._told[piece.index] += len(choices)
        timings = request.timings
        chunk = CompletionChunk(
            index=piece.index,
            content=piece.text,
            tokens=[choice.token for choice in choices],
            id_slot=self._writing.slots.number_of(request),
            tokens_predicted=self._told[piece.index],
            tokens_evaluated=timings.prompt_tokens,
        )
        if self._body.timings_per_token:
            chunk.timings = timings_of(timings)
        if self._body.n_probs:
            chunk.completion_probabilities = self._probabilities(choices)
        return chunk

    def _answer(self, index: int, text: Completion) -> CompletionAnswer:
        request = self._writing.requests[index]
        stop_type, word = _why(text)
        streamed = bool(self._body.stream)
        answer = CompletionAnswer(
            index=index,
            content="" if streamed else text.text,
            tokens=list(text.token_ids) if self._body.return_tokens and not streamed else [],
            id_slot=self._writing.slots.number_of(request),
            model=self._writing.model,
            tokens_predicted=len(text.token_ids),
            tokens_evaluated=text.timings.prompt_tokens,
            generation_settings=settings_of(
                request.params,
                seed=text.seed,
                stream=streamed,
                timings_per_token=bool(self._body.timings_per_token),
            ),
            prompt=self._tokenizer.decode(request.prompt_ids),
            has_new_line="\n" in text.text,
            truncated=text.finish_reason == "context",
            stop_type=stop_type,
            stopping_word=word,
            tokens_cached=text.timings.reused_tokens,
            timings=timings_of(text.timings),
        )
        if self._body.n_probs and not streamed:
            answer.completion_probabilities = self._probabilities(request.sampled_tokens())
        return answer

    def _probabilities(self, choices: Sequence[Any]) -> Probabilities:
        behind = bool(self._body.post_sampling_probs)
        return probabilities(self._tokenizer, choices, behind_samplers=behind)


def chosen_fields(answer: CompletionAnswer, names: Sequence[str] | None) -> dict[str, Any]:
    """An answer, or those of its fields that are named: `timings/prompt_n` is one within one."""
    told = answer.model_dump(exclude_none=True)
    if not names:
        return told
    found: dict[str, Any] = {}
    for name in names:
        value: Any = told
        for part in name.split("/"):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            found[name] = value
    return found


def _why(text: Completion) -> tuple[StopType, str]:
    """Why a text ended, and the stop string, if one did it."""
    if text.finish_reason != "stop":
        return "limit", ""
    if isinstance(text.stopped_by, str):
        return "word", text.stopped_by
    return "eos", ""
