"""`/v1/responses`: the endpoints, and the responses that are stored in memory."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot.server.chat import PreparedChat, for_counting
from ingot.server.errors import ApiError
from ingot.server.generation import while_connected
from ingot.server.http.access_log import record_of
from ingot.server.http.event_stream import STREAMED, EventStream
from ingot.server.http.json_response import JsonResponse
from ingot.server.openai.mcp_body import McpTools, asks_for_mcp, offered_tools
from ingot.server.openai.mcp_responses import respond_with_mcp
from ingot.server.openai.response_object import ResponseBuilder, ResponseObject
from ingot.server.openai.responses_body import Item, ResponsesBody, chat_of
from ingot.server.openai.shared import ERRORS, InputTokens, count_tokens
from ingot.server.parameters import check_parameters
from ingot.server.state import Server

_CALLS = ("function_call", "mcp_call")
_MAX_RESPONSES = 1024
_MAX_CHARACTERS = 64 << 20  # of all stored conversations; the oldest are dropped first


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response, and the conversation up to its end."""

    response: dict[str, object]
    items: tuple[Item, ...]
    inputs: int = 0  # how many of the items the model read

    @property
    def size(self) -> int:
        """Its characters, approximately."""
        return sum(len(repr(item)) for item in self.items)


class ResponseStore:
    """Responses by id. All methods belong to one event loop."""

    def __init__(
        self, max_responses: int = _MAX_RESPONSES, max_characters: int = _MAX_CHARACTERS
    ) -> None:
        self._stored: OrderedDict[str, tuple[StoredResponse, int]] = OrderedDict()
        self._max_responses = max_responses
        self._max_characters = max_characters
        self._characters = 0

    def __len__(self) -> int:
        return len(self._stored)

    def add(self, id: str, response: StoredResponse) -> None:
        """Store a response; the oldest make room for it."""
        size = response.size
        self._stored[id] = (response, size)
        self._characters += size
        while len(self._stored) > self._max_responses or self._characters > self._max_characters:
            _, (_, size) = self._stored.popitem(last=False)
            self._characters -= size

    def find(self, id: str) -> StoredResponse | None:
        """A response, if it is still stored."""
        found = self._stored.get(id)
        return None if found is None else found[0]

    def remove(self, id: str) -> bool:
        """Remove a response and return whether it was stored."""
        found = self._stored.pop(id, None)
        if found is not None:
            self._characters -= found[1]
        return found is not None


class ItemList(BaseModel):
    """A page of items; the next page begins after `last_id`."""

    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    first_id: str | None = None
    last_id: str | None = None
    has_more: bool


class Deleted(BaseModel):
    """A deleted response."""

    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


def router(server: Server) -> APIRouter:
    """The endpoints."""
    routes = APIRouter(responses=ERRORS)
    store = ResponseStore()

    def conversation(body: ResponsesBody) -> tuple[Item, ...]:
        before = () if body.previous_response_id is None else _previous(store, body).items
        return (*before, *body.items)

    def keeper(items: tuple[Item, ...]) -> Callable[[ResponseObject], None]:
        """What stores the response to a conversation."""

        def keep(response: ResponseObject) -> None:
            content = response.as_json()
            output = tuple(
                Item.model_validate(item)
                for item in content["output"]
                if not (item["type"] in _CALLS and item["status"] == "incomplete")
            )
            store.add(response.id, StoredResponse(content, (*items, *output), len(items)))

        return keep

    @routes.post("/v1/responses", response_model=ResponseObject, responses=STREAMED)
    @routes.post("/responses", include_in_schema=False)
    async def respond(body: ResponsesBody, http: HttpRequest) -> Response:
        """Generate the next items of a conversation."""
        check_parameters(body, record_of(http.scope), server.options)
        items = conversation(body)
        if asks_for_mcp(body.tools):
            return await respond_with_mcp(server, body, items, http, keeper(items))
        prepared = PreparedChat(chat_of(body, items, server.request_options(body.model)))
        generation = await server.generations.begin(
            server.catalog, body.model, record_of(http.scope), prepared, http.receive
        )

        builder = ResponseBuilder(generation, body, prepared.reader, keeper(items))
        if body.stream:
            return EventStream(generation, builder.events())
        async with generation:
            return JsonResponse(await while_connected(http.receive, builder.whole()))

    @routes.post("/v1/responses/input_tokens", response_model_exclude_none=True)
    @routes.post(
        "/responses/input_tokens", include_in_schema=False, response_model_exclude_none=True
    )
    async def input_tokens(body: ResponsesBody, http: HttpRequest) -> InputTokens:
        """Count the tokens of a conversation."""
        record = record_of(http.scope)
        check_parameters(body, record, server.options)
        own = [tool.name for tool in body.tools or () if not isinstance(tool, McpTools)]
        offered = await offered_tools(server, body.tools, own)
        options = for_counting(server.request_options(body.model))
        chat = chat_of(body, conversation(body), options, offered)
        return await count_tokens(server, body.model, chat, record)

    @routes.get("/v1/responses/{response_id}/input_items", response_model=ItemList)
    @routes.get("/responses/{response_id}/input_items", include_in_schema=False)
    async def input_items(
        response_id: str,
        order: Literal["asc", "desc"] = "desc",
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
        after: str | None = None,
    ) -> Response:
        """The items that the model read for a stored response."""
        found = store.find(response_id)
        if found is None:
            raise _unknown(response_id)
        return JsonResponse(_page(found, order, limit, after))

    @routes.get("/v1/responses/{response_id}", response_model=ResponseObject)
    @routes.get("/responses/{response_id}", include_in_schema=False)
    async def retrieve(response_id: str) -> Response:
        """Get a stored response."""
        found = store.find(response_id)
        if found is None:
            raise _unknown(response_id)
        return JsonResponse(found.response)

    @routes.delete("/v1/responses/{response_id}")
    @routes.delete("/responses/{response_id}", include_in_schema=False)
    async def delete(response_id: str) -> Deleted:
        """Delete a stored response."""
        if not store.remove(response_id):
            raise _unknown(response_id)
        return Deleted(id=response_id)

    return routes


def _page(found: StoredResponse, order: str, limit: int, after: str | None) -> dict[str, Any]:
    """A page of the items that the model read, each with an id."""
    items = [
        {**item.model_dump(exclude_none=True), "id": item.id or f"item_{number}"}
        for number, item in enumerate(found.items[: found.inputs])
    ]
    if order == "desc":
        items.reverse()
    if after is not None:
        places = [number for number, item in enumerate(items) if item["id"] == after]
        if not places:
            raise ApiError(400, f"there is no item {after!r:.60}", param="after")
        items = items[places[0] + 1 :]
    page = items[:limit]
    return ItemList(
        data=page,
        first_id=page[0]["id"] if page else None,
        last_id=page[-1]["id"] if page else None,
        has_more=len(items) > limit,
    ).model_dump()


def _previous(store: ResponseStore, body: ResponsesBody) -> StoredResponse:
    found = store.find(str(body.previous_response_id))
    if found is None:
        raise ApiError(
            400,
            f"there is no stored response {body.previous_response_id!r:.60}; only recent responses "
            "are kept, in memory, and none with store: false; send the whole conversation",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    return found


def _unknown(response_id: str) -> ApiError:
    return ApiError(404, f"there is no stored response {response_id!r:.60}", code="not_found")
