"""`/v1/responses`: conversations answered in items, and answers that can be asked for again."""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot.server.call import call_of
from ingot.server.chatting import Submission
from ingot.server.errors import ApiError
from ingot.server.json_answer import JsonAnswer
from ingot.server.openai.answers import ERRORS
from ingot.server.openai.responses_answer import ResponseAnswer, ResponseAnswers
from ingot.server.openai.responses_body import ResponsesBody, chat_of
from ingot.server.openai.responses_items import Item
from ingot.server.openai.responses_kept import KeptResponse, KeptResponses
from ingot.server.sse import STREAMED, EventStream
from ingot.server.state import Server
from ingot.server.writing import while_connected


class Deleted(BaseModel):
    """An answer that is gone."""

    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


def router(server: Server) -> APIRouter:
    """The endpoints."""
    made = APIRouter(responses=ERRORS)
    kept = KeptResponses()

    @made.post("/v1/responses", response_model=ResponseAnswer, responses=STREAMED)
    async def respond(body: ResponsesBody, http: HttpRequest) -> Response:
        """Answer a conversation."""
        before = () if body.previous_response_id is None else _previous(kept, body).items
        items = (*before, *body.items)
        submission = Submission(chat_of(body, items, server.options))
        writing = await server.writings.begin(
            server.catalog, body.model, call_of(http.scope), submission, http.receive
        )

        def keep(answer: ResponseAnswer) -> None:
            told = answer.model_dump()
            said = tuple(Item.model_validate(item) for item in told["output"])
            kept.keep(answer.id, KeptResponse(told, (*items, *said)))

        answers = ResponseAnswers(writing, body, submission.reading, keep)
        if body.stream:
            return EventStream(writing, answers.events())
        async with writing:
            return JsonAnswer(await while_connected(http.receive, answers.whole()))

    @made.get("/v1/responses/{response_id}", response_model=ResponseAnswer)
    async def retrieve(response_id: str) -> Response:
        """An answer once more."""
        found = kept.find(response_id)
        if found is None:
            raise _unknown(response_id)
        return JsonAnswer(found.answer)

    @made.delete("/v1/responses/{response_id}")
    async def delete(response_id: str) -> Deleted:
        """Let an answer go."""
        if not kept.forget(response_id):
            raise _unknown(response_id)
        return Deleted(id=response_id)

    return made


def _previous(kept: KeptResponses, body: ResponsesBody) -> KeptResponse:
    found = kept.find(str(body.previous_response_id))
    if found is None:
        raise ApiError(
            400,
            f"there is no response {body.previous_response_id!r:.60} here: answers are kept in "
            "memory, the newest of them, unless store is false; send the whole conversation",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    return found


def _unknown(response_id: str) -> ApiError:
    return ApiError(404, f"there is no response {response_id!r:.60} here", code="not_found")
