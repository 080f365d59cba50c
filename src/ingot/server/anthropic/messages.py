"""`/v1/messages`: conversations answered, as Anthropic's clients ask for it, or only counted."""

import asyncio
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot.server.anthropic.answer import MessageAnswer, MessageAnswers
from ingot.server.anthropic.body import CountBody, MessagesBody, chat_of
from ingot.server.call import call_of
from ingot.server.chatting import Submission, prepare
from ingot.server.json_answer import JsonAnswer
from ingot.server.openai.answers import ERRORS as OPENAI_ERRORS
from ingot.server.sse import STREAMED, EventStream
from ingot.server.state import Server
from ingot.server.writing import while_connected


class ErrorDetail(BaseModel):
    """What went wrong."""

    type: str
    message: str


class ErrorAnswer(BaseModel):
    """An answer with an error."""

    type: Literal["error"]
    error: ErrorDetail


class Counted(BaseModel):
    """The tokens of a conversation."""

    input_tokens: int


ERRORS: dict[int | str, dict[str, Any]] = {
    code: {**told, "model": ErrorAnswer} for code, told in OPENAI_ERRORS.items()
}


def router(server: Server) -> APIRouter:
    """The endpoints."""
    made = APIRouter(tags=["Anthropic"], responses=ERRORS)

    @made.post("/v1/messages", response_model=MessageAnswer, responses=STREAMED)
    async def messages(body: MessagesBody, http: HttpRequest) -> Response:
        """Answer a conversation."""
        submission = Submission(chat_of(body, server.options))
        writing = await server.writings.begin(
            server.catalog, body.model, call_of(http.scope), submission, http.receive
        )
        answers = MessageAnswers(writing, submission.reading)
        if body.stream:
            return EventStream(writing, answers.events())
        async with writing:
            return JsonAnswer(await while_connected(http.receive, answers.whole()))

    @made.post("/v1/messages/count_tokens")
    async def count_tokens(body: CountBody) -> Counted:
        """Count the tokens of a conversation."""
        chat = chat_of(body, server.options)
        with await server.catalog.lease(body.model) as lease:
            ids, _ = await asyncio.to_thread(prepare, lease.llm, chat)
        return Counted(input_tokens=len(ids))

    return made
