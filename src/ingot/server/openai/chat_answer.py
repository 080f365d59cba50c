"""The answers of `/v1/chat/completions`: whole, and as a stream of chunks.

Comes in: texts as they are written. Goes out: OpenAI's objects. Chunks that hold only text, which
are most of all, are put together from parts that are made once.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal

from pydantic import BaseModel

from ingot.engine import Completion, Request
from ingot.errors import IngotError
from ingot.reply import Content, Event, Reasoning, ReplyParser, ToolCallArguments, ToolCallBegin
from ingot.reply.events import joined
from ingot.server.chatting import Reading
from ingot.server.errors import ApiError
from ingot.server.openai.answers import (
    FINGERPRINT,
    TokenLogprob,
    Usage,
    error_events,
    finish_reason,
    new_id,
    now,
    token_logprobs,
    usage_of,
)
from ingot.server.openai.chat_body import ChatBody
from ingot.server.sse import DONE, dumps, event
from ingot.server.writing import Writing

ChatEnd = Literal["stop", "length", "tool_calls"]


class AnsweredFunction(BaseModel):
    """What is to be called."""

    name: str
    arguments: str


class AnsweredCall(BaseModel):
    """A call of a tool."""

    id: str
    type: Literal["function"] = "function"
    function: AnsweredFunction


class AnswerMessage(BaseModel):
    """What the model says."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    reasoning_content: str | None = None
    tool_calls: list[AnsweredCall] | None = None


class ChoiceLogprobs(BaseModel):
    """Those of all tokens, reasoning and calls included."""

    content: list[TokenLogprob]
    refusal: None = None


class ChatChoice(BaseModel):
    """One answer."""

    index: int
    message: AnswerMessage
    logprobs: ChoiceLogprobs | None = None
    finish_reason: ChatEnd


class ChatAnswer(BaseModel):
    """All of them."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: str = FINGERPRINT
    choices: list[ChatChoice]
    usage: Usage


class ChatAnswers:
    """Makes the answers of one call."""

    def __init__(self, writing: Writing, body: ChatBody, reading: Reading) -> None:
        self._writing = writing
        self._body = body
        self.reading = reading
        self._id = new_id("chatcmpl")
        self._created = now()

    async def whole(self) -> dict[str, Any]:
        """The answers, once all of them are there."""
        texts = await self._writing.results()
        answer = ChatAnswer(
            id=self._id,
            created=self._created,
            model=self._writing.model,
            choices=[self._choice(index, text) for index, text in enumerate(texts)],
            usage=usage_of(texts),
        )
        made = answer.model_dump()
        for choice in made["choices"]:  # names that only some answers have
            for name in ("reasoning_content", "tool_calls"):
                if choice["message"][name] is None:
                    del choice["message"][name]
        return made

    def _choice(self, index: int, text: Completion) -> ChatChoice:
        parser = self.reading.parser()
        reply = joined(self.reading.wanted([*parser.push(text.text), *parser.finish()]))
        calls = [
            AnsweredCall(
                id=call.id, function=AnsweredFunction(name=call.name, arguments=call.arguments)
            )
            for call in reply.tool_calls
        ]
        logprobs = None
        if self._body.logprobs:
            content = token_logprobs(self._writing.llm.tokenizer, text.logprobs)
            logprobs = ChoiceLogprobs(content=content)
        return ChatChoice(
            index=index,
            message=AnswerMessage(
                content=reply.content if reply.content or not calls else None,
                reasoning_content=reply.reasoning or None,
                tool_calls=calls or None,
            ),
            logprobs=logprobs,
            finish_reason="tool_calls" if calls else finish_reason(text.finish_reason),
        )

    async def events(self) -> AsyncIterator[bytes]:
        """The answers as they come."""
        choices = [
            _StreamedChoice(self, index, request, self.reading.parser())
            for index, request in enumerate(self._writing.requests)
        ]
        try:
            for choice in choices:
                yield choice.begin()
            texts: dict[int, Completion] = {}
            async for piece in self._writing.pieces():
                choice = choices[piece.index]
                if made := choice.push(piece.text):
                    yield made
                if piece.done is not None:
                    texts[piece.index] = piece.done
                    yield choice.end(finish_reason(piece.done.finish_reason))
            if self._body.includes_usage:
                usage = usage_of([texts[index] for index in range(len(texts))])
                yield event({**self.head, "choices": [], "usage": usage.model_dump()})
            yield DONE
        except (ApiError, IngotError) as error:
            yield error_events(error)

    @property
    def head(self) -> dict[str, Any]:
        """What all chunks begin with."""
        return {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._writing.model,
            "system_fingerprint": FINGERPRINT,
        }

    @property
    def includes_usage(self) -> bool:
        """Whether chunks have a place for the usage, which the last one fills."""
        return self._body.includes_usage

    def logprobs_of(self, request: Request, told: int) -> list[TokenLogprob]:
        """Those that have come since so many were told, if they are wanted."""
        if not self._body.logprobs:
            return []
        return token_logprobs(self._writing.llm.tokenizer, request.logprobs[told:])


class _StreamedChoice:
    """Writes the chunks of one answer."""

    def __init__(
        self, answers: ChatAnswers, index: int, request: Request, parser: ReplyParser
    ) -> None:
        self._answers = answers
        self._index = index
        self._request = request
        self._parser = parser
        self._told = 0  # tokens whose log-probabilities were sent
        head = dumps(answers.head)[:-1]
        # All of a chunk that holds only text, but for that text.
        self._before = f'data: {head},"choices":[{{"index":{index},"delta":{{"content":'
        usage = ',"usage":null' if answers.includes_usage else ""
        self._after = f'}},"logprobs":null,"finish_reason":null}}]{usage}}}\n\n'

    def begin(self) -> bytes:
        """The first chunk, which says who speaks."""
        return self._chunk({"role": "assistant", "content": ""})

    def push(self, text: str) -> bytes:
        """The chunks that a piece of text makes; perhaps none yet."""
        return self._chunks(self._parser.push(text))

    def end(self, reason: ChatEnd) -> bytes:
        """The rest, and why it ends."""
        rest = self._chunks(self._parser.finish())
        if self._parser.tool_calls:
            reason = "tool_calls"
        return rest + self._chunk({}, reason)

    def _chunks(self, events: Sequence[Event]) -> bytes:
        return b"".join(map(self._of, self._answers.reading.wanted(events)))

    def _of(self, said: Event) -> bytes:
        logprobs = self._answers.logprobs_of(self._request, self._told)
        self._told += len(logprobs)
        match said:
            case Content(text) if not logprobs:
                return f"{self._before}{dumps(text)}{self._after}".encode()
            case Content(text):
                delta: dict[str, Any] = {"content": text}
            case Reasoning(text):
                delta = {"reasoning_content": text}
            case ToolCallBegin(index, id, name):
                call = {"index": index, "id": id, "type": "function"}
                delta = {"tool_calls": [{**call, "function": {"name": name, "arguments": ""}}]}
            case ToolCallArguments(index, text):
                delta = {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
        return self._chunk(delta, logprobs=logprobs)

    def _chunk(
        self,
        delta: dict[str, Any],
        reason: ChatEnd | None = None,
        logprobs: Sequence[TokenLogprob] = (),
    ) -> bytes:
        if reason is not None:
            logprobs = self._answers.logprobs_of(self._request, self._told)
        content = ChoiceLogprobs(content=list(logprobs)).model_dump() if logprobs else None
        choice = {
            "index": self._index,
            "delta": delta,
            "logprobs": content,
            "finish_reason": reason,
        }
        usage = {"usage": None} if self._answers.includes_usage else {}
        return event({**self._answers.head, "choices": [choice], **usage})
