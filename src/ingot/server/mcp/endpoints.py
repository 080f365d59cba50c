"""`/mcp/servers` and `/mcp/call`: the tools of MCP servers, and one call of a tool.

The page shows the tools, and asks for consent before it sends a call.
"""

from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request as HttpRequest

from ingot.server.body_limits import Name
from ingot.server.error_bodies import OpenAIError, error_responses
from ingot.server.errors import ApiError
from ingot.server.generation import while_connected
from ingot.server.http.access_log import record_of
from ingot.server.mcp.servers import mcp_error
from ingot.server.mcp.tools import McpError, State
from ingot.server.parameters import check_parameters
from ingot.server.sampling_body import RequestBody
from ingot.server.state import Server


class ToolInfo(BaseModel):
    """A tool."""

    name: str
    description: str
    input_schema: dict[str, Any]
    annotations: dict[str, Any]


class ServerInfo(BaseModel):
    """A configured MCP server; if it has failed, `error` says why."""

    name: str
    transport: str
    state: State
    error: str | None
    tools: list[ToolInfo]


class ServerList(BaseModel):
    """All configured MCP servers."""

    object: Literal["list"] = "list"
    data: list[ServerInfo]


class CallBody(RequestBody):
    """A call of a tool."""

    server: Name
    tool: Name
    arguments: dict[str, Any] = Field(default_factory=dict)


class CallResult(BaseModel):
    """What a tool returned: its content in MCP's form, and as the text that the model reads."""

    text: str
    content: list[dict[str, Any]]
    structured_content: Any = None
    is_error: bool


def router(server: Server) -> APIRouter:
    """The endpoints."""
    routes = APIRouter(tags=["MCP"], responses=error_responses(OpenAIError))

    @routes.get("/mcp/servers")
    async def servers() -> ServerList:
        """The configured MCP servers with their tools."""
        server.mcp.check_on()
        return ServerList(
            data=[
                ServerInfo(
                    name=each.name,
                    transport=each.transport,
                    state=each.state,
                    error=each.error,
                    tools=[ToolInfo(**tool.as_json()) for tool in each.known_tools],
                )
                for each in server.mcp.connections.values()
            ]
        )

    @routes.post("/mcp/call")
    async def call(body: CallBody, http: HttpRequest) -> CallResult:
        """Call a tool; a client that disconnects cancels the call."""
        check_parameters(body, record_of(http.scope), server.options)
        connection = server.mcp.find(body.server)

        async def called() -> CallResult:
            if body.tool not in [tool.name for tool in await connection.tools()]:
                raise ApiError(404, f"the MCP server {body.server!r} has no tool {body.tool!r:.60}")
            result = await connection.call(body.tool, body.arguments)
            return CallResult(
                text=result.text,
                content=[dict(block) for block in result.content],
                structured_content=result.structured,
                is_error=result.is_error,
            )

        try:
            return await while_connected(http.receive, called())
        except McpError as error:
            raise mcp_error(error) from None

    return routes
