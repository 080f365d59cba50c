"""`/v1/chat/completions`: conversations answered."""

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot.server.call import call_of
from ingot.server.chatting import Submission
from ingot.server.json_answer import JsonAnswer
from ingot.server.openai.answers import ERRORS
from ingot.server.openai.chat_answer import ChatAnswer, ChatAnswers
from ingot.server.openai.chat_body import ChatBody, chat_of
from ingot.server.sse import STREAMED, EventStream
from ingot.server.state import Server
from ingot.server.writing import while_connected


def router(server: Server) -> APIRouter:
    """The endpoint."""
    made = APIRouter(responses=ERRORS)

    @made.post("/v1/chat/completions", response_model=ChatAnswer, responses=STREAMED)
    async def chat(body: ChatBody, http: HttpRequest) -> Response:
        """Answer a conversation."""
        submission = Submission(chat_of(body, server.options))
        writing = await server.writings.begin(
            server.catalog, body.model, call_of(http.scope), submission, http.receive
        )
        answers = ChatAnswers(writing, body, submission.reading)
        if body.stream:
            return EventStream(writing, answers.events())
        async with writing:
            return JsonAnswer(await while_connected(http.receive, answers.whole()))

    return made
