"""`/v1/responses` with tools of MCP servers: responses of several rounds, and approvals."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot.errors import IngotError
from ingot.reply import ToolCall
from ingot.server.errors import ApiError
from ingot.server.generation import Piece, while_connected
from ingot.server.http.access_log import record_of
from ingot.server.http.event_stream import EventStream
from ingot.server.http.json_response import JsonResponse
from ingot.server.mcp.rounds import CallRun, RoundEnd, ToolRounds
from ingot.server.mcp.servers import OfferedTool
from ingot.server.openai.mcp_body import functions, offered_tools
from ingot.server.openai.mcp_output import McpOutput
from ingot.server.openai.response_items import StreamEvent
from ingot.server.openai.response_object import ResponseBuilder, ResponseObject, status_of
from ingot.server.openai.responses_body import Item, ResponsesBody, approved_calls, chat_of
from ingot.server.state import Server


async def respond_with_mcp(
    server: Server,
    body: ResponsesBody,
    items: tuple[Item, ...],
    http: HttpRequest,
    keep: Callable[[ResponseObject], None],
) -> Response:
    """Generate the next items of a conversation, and run tools of MCP servers."""
    names = [tool.name for tool in functions(body.tools, {})]
    offered = await offered_tools(server, body.tools, names)
    chat = chat_of(body, items, server.request_options(body.model), offered)
    rounds = ToolRounds(
        server,
        body.model,
        record_of(http.scope),
        chat,
        offered,
        most_calls=body.max_tool_calls,
    )
    requests = approved_calls(items)
    approved = [_approved(request, offered) for request in requests]
    runs = await rounds.begin(http.receive, approved)
    ids = [str(request.id) for request in requests]
    listed = frozenset(str(item.server_label) for item in items if item.type == "mcp_list_tools")
    builder = McpResponseBuilder(rounds, body, keep, list(zip(runs, ids, strict=True)), listed)
    if body.stream:
        return EventStream(rounds, builder.events())
    async with rounds:
        return JsonResponse(await while_connected(http.receive, builder.whole()))


def _approved(request: Item, offered: Mapping[str, OfferedTool]) -> CallRun:
    for tool in offered.values():
        if (tool.connection.name, tool.tool.name) == (request.server_label, request.name):
            call = ToolCall(str(request.id), tool.name, request.arguments or "{}")
            return CallRun(call, tool)
    raise ApiError(
        400,
        f"a call of {request.name!r:.60} at the MCP server {request.server_label!r:.60} was "
        "approved, but tools does not offer it",
        param="tools",
    )


class McpResponseBuilder(ResponseBuilder):
    """Makes the response to one request from its rounds."""

    def __init__(
        self,
        rounds: ToolRounds,
        body: ResponsesBody,
        keep: Callable[[ResponseObject], None],
        approved: Sequence[tuple[CallRun, str]],
        listed: frozenset[str],
    ) -> None:
        """`approved` are calls that have run; `listed` are servers whose tools are known."""
        assert rounds.reader is not None, "the first round has begun"
        self._items = McpOutput(rounds.offered)
        super().__init__(rounds.generation, body, rounds.reader, keep, self._items)
        self._rounds = rounds
        self._approved = approved
        self._listed = listed

    async def whole(self) -> dict[str, object]:
        """The response, once all rounds are done."""
        async for _ in self._item_events():
            pass
        return self._ended(self._rounds.completions).as_json()

    async def events(self) -> AsyncIterator[bytes]:
        """The response as a stream of events."""
        initial = self._response("in_progress").as_json()
        yield self._event({"type": "response.created", "response": initial})
        yield self._event({"type": "response.in_progress", "response": initial})
        try:
            async for each in self._item_events():
                yield self._event(each or {"type": "response.in_progress", "response": initial})
            response = self._ended(self._rounds.completions)
            kind = f"response.{response.status}"
            yield self._event({"type": kind, "response": response.as_json()})
        except (ApiError, IngotError) as error:
            yield self._failure(error)

    async def _item_events(self) -> AsyncIterator[StreamEvent]:
        """The events of all items; an empty one tells the progress of a prompt."""
        for each in self._items.listed(self._listed):
            yield each
        for run, request_id in self._approved:
            for each in self._items.approved(run, request_id):
                yield each
        progress = bool(self._body.return_progress)
        async for part in self._rounds.events(progress=progress):
            self._generation = self._rounds.generation
            self._timed = self._times(part if isinstance(part, Piece) else Piece(0, ""))
            match part:
                case Piece():
                    yield {}
                case CallRun():
                    for each in self._items.ran(part):
                        yield each
                case RoundEnd(done, _):
                    for each in self._items.close(status_of(done)):
                        yield each
                case _:
                    for each in self._items.push(part):
                        yield each
