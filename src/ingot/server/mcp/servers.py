"""McpServers: all MCP servers of the configuration, and the tools that a request asks for."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingot.errors import ConfigError
from ingot.server.errors import ApiError
from ingot.server.mcp.tools import McpError, McpTimeoutError, McpTool
from ingot.server.mcp_config import McpServerConfig

if TYPE_CHECKING:
    from ingot.server.mcp.connection import McpConnection


@dataclass(frozen=True, slots=True)
class ToolsWanted:
    """Which tools of a server a request offers to the model, and which run without approval."""

    server: str
    only: frozenset[str] | None = None  # None: all
    only_read_only: bool = False
    runs: frozenset[str] | bool = False  # names, or all, or none

    def offers(self, tool: McpTool) -> bool:
        """Whether the model may call a tool."""
        if self.only_read_only and not tool.read_only:
            return False
        return self.only is None or tool.name in self.only

    def runs_tool(self, tool: McpTool) -> bool:
        """Whether a call needs no approval."""
        return self.runs if isinstance(self.runs, bool) else tool.name in self.runs


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool of an MCP server in a request."""

    name: str  # that the model uses
    connection: "McpConnection"
    tool: McpTool
    runs: bool  # without approval

    @property
    def function(self) -> dict[str, object]:
        """The tool in the form of `/v1/chat/completions`."""
        function = {
            "name": self.name,
            "description": self.tool.description,
            "parameters": dict(self.tool.input_schema),
        }
        return {"type": "function", "function": function}


class McpServers:
    """The configured servers by name; there may be none."""

    def __init__(
        self, configs: Sequence[McpServerConfig], report: Callable[[str], None] | None = None
    ) -> None:
        self._report = report or (lambda _: None)
        self.connections: Mapping[str, McpConnection] = _connections(configs, self._report)

    def start(self) -> None:
        """Begin to connect to all servers; nobody waits for them."""
        for connection in self.connections.values():
            if unknown := connection.config.unknown:
                self._report(f"MCP server {connection.name}: ignored {', '.join(unknown)}")
            connection.start()

    def stop(self) -> None:
        """End all connections; current calls fail."""
        for connection in self.connections.values():
            connection.stop()

    def kill(self) -> None:
        """Kill the processes of servers at once."""
        for connection in self.connections.values():
            connection.kill()

    async def close(self) -> None:
        """End all connections, and the processes of servers."""
        await asyncio.gather(*(each.close() for each in self.connections.values()))

    def check_on(self, param: str | None = None) -> None:
        """An error if no server is configured; `param` is the parameter that asks for one."""
        if not self.connections:
            raise ApiError(
                404 if param is None else 400,
                "MCP is off: start the server with --mcp-config FILE",
                param=param,
                code="mcp_off",
            )

    def find(self, name: str, param: str | None = None) -> "McpConnection":
        """A server by its name."""
        self.check_on(param)
        if name not in self.connections:
            known = ", ".join(self.connections)
            raise ApiError(
                404 if param is None else 400,
                f"there is no MCP server {name!r:.60}; there are: {known}",
                param=param,
            )
        return self.connections[name]

    async def offered(
        self, wanted: Sequence[ToolsWanted], taken: Collection[str]
    ) -> dict[str, OfferedTool]:
        """The tools that a request asks for, by the names that the model uses.

        A tool has its own name, or `server__tool` if another one or a function (`taken`) has it.
        """
        found = [(each, self.find(each.server, "tools")) for each in wanted]
        lists = await asyncio.gather(*(_tools(connection) for _, connection in found))
        pairs = [
            (each, connection, tool)
            for (each, connection), tools in zip(found, lists, strict=True)
            for tool in tools
            if each.offers(tool)
        ]
        names = [tool.name for _, _, tool in pairs]
        offered: dict[str, OfferedTool] = {}
        for each, connection, tool in pairs:
            name = tool.name
            if name in taken or names.count(name) > 1:
                name = f"{connection.name}__{name}"
            offered[name] = OfferedTool(name, connection, tool, each.runs_tool(tool))
        return offered


async def _tools(connection: "McpConnection") -> tuple[McpTool, ...]:
    try:
        return await connection.tools()
    except McpError as error:
        raise mcp_error(error) from None


def mcp_error(error: McpError) -> ApiError:
    """What a client learns about a server that cannot be used."""
    if isinstance(error, McpTimeoutError):
        return ApiError(504, str(error), code="mcp_timeout")
    return ApiError(502, str(error), code="mcp_unavailable")


def _connections(
    configs: Sequence[McpServerConfig], report: Callable[[str], None]
) -> "dict[str, McpConnection]":
    if not configs:
        return {}
    try:
        from ingot.server.mcp.connection import McpConnection  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"MCP needs the package {error.name}: pip install 'ingot-llm[mcp]'"
        ) from None
    return {config.name: McpConnection(config, report) for config in configs}
