"""The answers of `/v1/responses`: an object with items, whole and as a stream of events."""

import time
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

from pydantic import BaseModel

from ingot.engine import Completion
from ingot.errors import IngotError
from ingot.reply.events import merged
from ingot.server.chatting import Reading
from ingot.server.errors import ApiError, facts_of
from ingot.server.openai.responses_body import ResponsesBody
from ingot.server.openai.responses_output import (
    Output,
    OutputItem,
    ReasoningItem,
    StreamEvent,
)
from ingot.server.sse import event
from ingot.server.writing import Writing

ResponseStatus = Literal["in_progress", "completed", "incomplete", "failed"]


class InputDetails(BaseModel):
    """Tokens of a prompt, taken apart."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputDetails(BaseModel):
    """Tokens of an answer, taken apart."""

    reasoning_tokens: int


class ResponseUsage(BaseModel):
    """Tokens read and written."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class ResponseFailure(BaseModel):
    """What went wrong while the answer was written."""

    code: str
    message: str


class Incomplete(BaseModel):
    """Why an answer is not complete."""

    reason: Literal["max_output_tokens"]


class ResponseAnswer(BaseModel):
    """What the model says, and how it was asked."""

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


class ResponseAnswers:
    """Makes the answer of one call; `keep` is told of it when it is complete."""

    def __init__(
        self,
        writing: Writing,
        body: ResponsesBody,
        reading: Reading,
        keep: Callable[[ResponseAnswer], None],
    ) -> None:
        self._writing = writing
        self._body = body
        self._reading = reading
        self._parser = reading.parser()
        self._keep = keep
        self._output = Output()
        self._id = f"resp_{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._sent = 0  # events

    async def whole(self) -> dict[str, Any]:
        """The answer, once it is there."""
        (done,) = await self._writing.results()
        said = merged([*self._parser.push(done.text), *self._parser.finish()])
        for one in self._reading.wanted(said):
            list(self._output.push(one))
        list(self._output.close(_status(done)))
        return self._ended(done).model_dump()

    async def events(self) -> AsyncIterator[bytes]:
        """The answer as it comes."""
        begun = self._answer("in_progress").model_dump()
        yield self._event({"type": "response.created", "response": begun})
        yield self._event({"type": "response.in_progress", "response": begun})
        try:
            async for piece in self._writing.pieces():
                said = self._parser.push(piece.text)
                if piece.done is not None:
                    said += self._parser.finish()
                for one in self._reading.wanted(said):
                    for told in self._output.push(one):
                        yield self._event(told)
                if piece.done is not None:
                    for told in self._output.close(_status(piece.done)):
                        yield self._event(told)
                    answer = self._ended(piece.done)
                    kind = f"response.{answer.status}"
                    yield self._event({"type": kind, "response": answer.model_dump()})
        except (ApiError, IngotError) as error:
            facts = facts_of(error)
            failure = ResponseFailure(code=facts.code or facts.kind, message=facts.message)
            failed = self._answer("failed").model_copy(update={"error": failure})
            yield self._event({"type": "response.failed", "response": failed.model_dump()})

    def _event(self, told: StreamEvent) -> bytes:
        made = event({**told, "sequence_number": self._sent}, told["type"])
        self._sent += 1
        return made

    def _ended(self, done: Completion) -> ResponseAnswer:
        status = _status(done)
        answer = self._answer(status).model_copy(
            update={
                "completed_at": int(time.time()) if status == "completed" else None,
                "incomplete_details": None
                if status == "completed"
                else Incomplete(reason="max_output_tokens"),
                "usage": self._usage(done),
            }
        )
        if self._body.store is not False:
            self._keep(answer)
        return answer

    def _answer(self, status: ResponseStatus) -> ResponseAnswer:
        body = self._body
        choice = body.tool_choice or "auto"
        form = body.text and body.text.format
        return ResponseAnswer(
            id=self._id,
            created_at=self._created,
            status=status,
            model=self._writing.model,
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
        )

    def _usage(self, done: Completion) -> ResponseUsage:
        """Tokens; those of reasoning are counted in its text, without marks."""
        thoughts = [
            part.text
            for item in self._output.items
            if isinstance(item, ReasoningItem)
            for part in item.content
        ]
        tokenizer = self._writing.llm.tokenizer
        reasoning = sum(len(tokenizer.encode(text, add_special=False)) for text in thoughts)
        read, written = done.timings.prompt_tokens, len(done.token_ids)
        return ResponseUsage(
            input_tokens=read,
            input_tokens_details=InputDetails(cached_tokens=done.timings.reused_tokens),
            output_tokens=written,
            output_tokens_details=OutputDetails(reasoning_tokens=min(reasoning, written)),
            total_tokens=read + written,
        )


def _status(done: Completion) -> Literal["completed", "incomplete"]:
    return "completed" if done.finish_reason == "stop" else "incomplete"


def _dumped(form: BaseModel) -> dict[str, Any]:
    return form.model_dump(by_alias=True, exclude_none=True)
