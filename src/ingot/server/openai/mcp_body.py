"""Tools of type `mcp` in the bodies of `/v1/chat/completions` and `/v1/responses`."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Discriminator, Tag

from ingot.server.body_limits import Many, Name
from ingot.server.errors import ApiError
from ingot.server.mcp.servers import OfferedTool, ToolsWanted
from ingot.server.sampling_body import Body, ParameterGroup
from ingot.server.state import Server


class ToolFilter(ParameterGroup):
    """Tools by their names, or those that only read."""

    tool_names: Many[Name] | None = None
    read_only: bool | None = None


class Approval(ParameterGroup):
    """Which tools need the client's approval; for others it is needed."""

    always: ToolFilter | None = None
    never: ToolFilter | None = None


class McpTools(ParameterGroup):
    """The tools of an MCP server that this server's configuration names."""

    type: Literal["mcp"]
    server_label: Name
    allowed_tools: Many[Name] | ToolFilter | None = None
    require_approval: Literal["always", "never"] | Approval | None = None
    server_url: str | None = None
    connector_id: str | None = None
    authorization: str | None = None
    headers: dict[str, Any] | None = None

    def wanted(self, number: int) -> ToolsWanted:
        """Which tools are offered, and which run without approval."""
        for name in ("server_url", "connector_id", "authorization", "headers"):
            if getattr(self, name):
                raise ApiError(
                    400,
                    f"tools[{number}] has {name!r}, but this server connects only to the MCP "
                    "servers of its --mcp-config; leave it out",
                    param=f"tools[{number}].{name}",
                )
        allowed = self.allowed_tools
        chosen = allowed if isinstance(allowed, ToolFilter) else ToolFilter(tool_names=allowed)
        return ToolsWanted(
            self.server_label,
            None if chosen.tool_names is None else frozenset(chosen.tool_names),
            bool(chosen.read_only),
            self._runs(number),
        )

    def _runs(self, number: int) -> frozenset[str] | bool:
        match self.require_approval:
            case Approval(never=ToolFilter(tool_names=list(names), read_only=None)):
                return frozenset(names)
            case Approval(never=None):
                return False
            case Approval():
                raise ApiError(
                    400,
                    f"tools[{number}].require_approval.never needs tool_names, and nothing else",
                    param=f"tools[{number}].require_approval",
                )
            case approval:
                return approval == "never"


def _kind(entry: object) -> str:
    kind = entry.get("type") if isinstance(entry, dict) else getattr(entry, "type", None)
    return "mcp" if kind == "mcp" else "function"


T = TypeVar("T", bound=Body)
OneOf = Annotated[
    Annotated[T, Tag("function")] | Annotated[McpTools, Tag("mcp")], Discriminator(_kind)
]


def functions(
    tools: Sequence[T | McpTools] | None, offered: Mapping[str, OfferedTool] | None
) -> list[T]:
    """The tools that the client runs. An endpoint that offers no MCP tools refuses them."""
    found = [tool for tool in tools or () if not isinstance(tool, McpTools)]
    if offered is None and len(found) < len(tools or ()):
        raise ApiError(400, "tools of type mcp are not supported here", param="tools")
    return found


def asks_for_mcp(tools: Sequence[Body] | None) -> bool:
    """Whether a body has tools of MCP servers."""
    return any(isinstance(tool, McpTools) for tool in tools or ())


async def offered_tools(
    server: Server, tools: Sequence[Body] | None, taken: Sequence[str | None]
) -> dict[str, OfferedTool]:
    """The tools of MCP servers that a body asks for, by the names that the model uses."""
    wanted = [
        tool.wanted(number) for number, tool in enumerate(tools or ()) if isinstance(tool, McpTools)
    ]
    labels = [each.server for each in wanted]
    if len(set(labels)) < len(labels):
        raise ApiError(400, "tools name an MCP server twice", param="tools")
    return await server.mcp.offered(wanted, [name for name in taken if name])
