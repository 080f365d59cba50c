"""The response object of `/v1/responses`, whole and as a stream of events."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Literal

from pydantic import BaseModel

from ingot.engine import Completion
from ingot.errors import IngotError
from ingot.reply.events import merged
from ingot.server.chat import ReplyReader
from ingot.server.errors import ApiError, error_info
from ingot.server.generation import Generation, Piece
from ingot.server.http.event_stream import event
from ingot.server.openai.response_items import (
    Output,
    OutputItem,
    ReasoningItem,
    StreamEvent,
)
from ingot.server.openai.responses_body import ResponsesBody
from ingot.server.openai.shared import new_id, now
from ingot.server.timings import CompletionTimings, progress_of, timings_of

ResponseStatus = Literal["in_progress", "completed", "incomplete", "failed"]


class InputDetails(BaseModel):
    """Prompt tokens by kind."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputDetails(BaseModel):
    """Generated tokens by kind."""

    reasoning_tokens: int


class ResponseUsage(BaseModel):
    """Prompt tokens and generated tokens."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class ResponseFailure(BaseModel):
    """An error during generation."""

    code: str
    message: str


class Incomplete(BaseModel):
    """Why a response is incomplete."""

    reason: Literal["max_output_tokens"]


class ResponseObject(BaseModel):
    """The output of the model, with the parameters of the request."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: ResponseStatus
    error: ResponseFailure | None = None
    incomplete_details: Incomplete | None = None
    model: str
    output: list[OutputItem]
    usage: ResponseUsage | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool = True
    background: bool = False
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    tools: list[dict[str, Any]] = []
    tool_choice: str | dict[str, Any] = "auto"
    parallel_tool_calls: bool = True
    text: dict[str, Any]
    reasoning: dict[str, Any]
    truncation: Literal["disabled"] = "disabled"
    metadata: dict[str, str] = {}
    user: str | None = None
    timings: CompletionTimings | None = None  # at the end
    warnings: list[str] | None = None  # about parameters that were ignored

    def as_json(self) -> dict[str, Any]:
        """The object, with timings and warnings only if there are any."""
        absent = {name for name in ("timings", "warnings") if not getattr(self, name)}
        return self.model_dump(exclude=absent)


class ResponseBuilder:
    """Makes the response to one request; `keep` gets it when it is complete."""

    def __init__(
        self,
        generation: Generation,
        body: ResponsesBody,
        reader: ReplyReader,
        keep: Callable[[ResponseObject], None],
        output: Output | None = None,
    ) -> None:
        self._generation = generation
        self._body = body
        self._reader = reader
        self._parser = reader.parser()
        self._keep = keep
        self._output = output or Output()
        self._id = new_id("resp_")
        self._created = now()
        self._sent = 0  # events
        self._timed: dict[str, object] = {}  # what the current events say of times

    async def whole(self) -> dict[str, object]:
        """The response, once the completion is done."""
        (done,) = await self._generation.results()
        parts = merged([*self._parser.push(done.text), *self._parser.finish(cut=done.is_cut)])
        for part in self._reader.allowed(parts):
            list(self._output.push(part))
        list(self._output.close(status_of(done)))
        return self._ended([done]).as_json()

    async def events(self) -> AsyncIterator[bytes]:
        """The response as a stream of events."""
        initial = self._response("in_progress").as_json()
        yield self._event({"type": "response.created", "response": initial})
        yield self._event({"type": "response.in_progress", "response": initial})
        try:
            async for piece in self._generation.pieces(progress=bool(self._body.return_progress)):
                self._timed = self._times(piece)
                if piece.progress is not None:
                    yield self._event({"type": "response.in_progress", "response": initial})
                    continue
                parts = self._parser.push(piece.text)
                if piece.done is not None:
                    parts += self._parser.finish(cut=piece.done.is_cut)
                for part in self._reader.allowed(parts):
                    for item_event in self._output.push(part):
                        yield self._event(item_event)
                if piece.done is not None:
                    for item_event in self._output.close(status_of(piece.done)):
                        yield self._event(item_event)
                    response = self._ended([piece.done])
                    kind = f"response.{response.status}"
                    yield self._event({"type": kind, "response": response.as_json()})
        except (ApiError, IngotError) as error:
            yield self._failure(error)

    def _failure(self, error: ApiError | IngotError) -> bytes:
        """The last event after an error."""
        info = error_info(error)
        failure = ResponseFailure(code=info.code or info.kind, message=info.message)
        failed = self._response("failed").model_copy(update={"error": failure})
        return self._event({"type": "response.failed", "response": failed.as_json()})

    def _times(self, piece: Piece) -> dict[str, object]:
        """The timings of a piece's events, or the progress of the prompt, if asked for."""
        timings = self._generation.requests[0].timings
        if piece.progress is not None:
            progress = progress_of(piece.progress, timings, self._generation.seconds)
            return {"prompt_progress": progress.model_dump()}
        return {"timings": timings_of(timings).model_dump()} if self._body.timings_per_token else {}

    def _event(self, content: StreamEvent) -> bytes:
        more = {**self._timed, "sequence_number": self._sent}
        numbered = event({**content, **more}, content["type"])
        self._sent += 1
        return numbered

    def _ended(self, completions: Sequence[Completion]) -> ResponseObject:
        """The response after the last of its completions."""
        done = completions[-1]
        status = status_of(done)
        response = self._response(status).model_copy(
            update={
                "completed_at": now() if status == "completed" else None,
                "incomplete_details": None
                if status == "completed"
                else Incomplete(reason="max_output_tokens"),
                "usage": self._usage(completions),
                "timings": timings_of(done.timings),
            }
        )
        if self._body.store is not False:
            self._keep(response)
        return response

    def _response(self, status: ResponseStatus) -> ResponseObject:
        body = self._body
        choice = body.tool_choice or "auto"
        form = body.text and body.text.format
        return ResponseObject(
            id=self._id,
            created_at=self._created,
            status=status,
            model=self._generation.model,
            output=list(self._output.items),
            instructions=body.instructions,
            previous_response_id=body.previous_response_id,
            store=body.store is not False,
            max_output_tokens=body.max_output_tokens,
            **body.model_dump(include={"temperature", "top_p"}),
            tools=[tool.model_dump() for tool in body.tools or ()],
            tool_choice=choice if isinstance(choice, str) else choice.model_dump(),
            parallel_tool_calls=body.parallel_tool_calls is not False,
            text={"format": _dumped(form) if form else {"type": "text"}},
            reasoning={"effort": body.reasoning and body.reasoning.effort, "summary": None},
            metadata=body.metadata or {},
            user=body.user,
            warnings=self._generation.warnings,
        )

    def _usage(self, completions: Sequence[Completion]) -> ResponseUsage:
        """The tokens; those of reasoning are counted in its text, without its marks."""
        reasoning_texts = [
            part.text
            for item in self._output.items
            if isinstance(item, ReasoningItem)
            for part in item.content
        ]
        tokenizer = self._generation.llm.tokenizer
        reasoning = sum(len(tokenizer.encode(text, add_special=False)) for text in reasoning_texts)
        read = sum(done.timings.prompt_tokens for done in completions)
        reused = sum(done.timings.reused_tokens for done in completions)
        generated = sum(len(done.token_ids) for done in completions)
        return ResponseUsage(
            input_tokens=read,
            input_tokens_details=InputDetails(cached_tokens=reused),
            output_tokens=generated,
            output_tokens_details=OutputDetails(reasoning_tokens=min(reasoning, generated)),
            total_tokens=read + generated,
        )


def status_of(done: Completion) -> Literal["completed", "incomplete"]:
    """Whether a completion came to its end."""
    return "incomplete" if done.is_cut else "completed"


def _dumped(form: BaseModel) -> dict[str, object]:
    return form.model_dump(by_alias=True, exclude_none=True)
